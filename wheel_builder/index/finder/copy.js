// Buttons that copy commands: one beside each, and one for all that are not optional.
function copyButton(code) {
  const button = element("button", "Copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // No clipboard for this page: leave it to the user's own keys.
      getSelection().selectAllChildren(code);
      button.textContent = "Selected: press Ctrl+C";
    }
  });
  return button;
}

function addCopyButtons(part) {
  for (const code of part.querySelectorAll("pre code")) {
    const [line, pre] = [element("div", ""), code.parentNode];
    line.className = "line";
    pre.replaceWith(line);
    line.append(pre, copyButton(code));
  }
}

function addCopyAll(part) {
  const lines = [...part.querySelectorAll("pre code")].filter((code) => !code.closest("[data-optional]"));
  const record = part.querySelector(".record");
  // A GPU for which only a page says which PyTorch to take has a step without a command.
  if (record && lines.length > 1 && !part.querySelector("li[data-packaged=no]")) {
    const button = copyButton(element("code", lines.map((code) => code.textContent).join("\n")));
    button.textContent = "Copy all";
    record.before(button);
  }
}

