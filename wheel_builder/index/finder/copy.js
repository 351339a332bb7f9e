// Buttons that copy commands: one for each, and one for all required commands.
function copyButton(code) {
  const button = element("button", "Copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // This page has no access to the clipboard. The user copies with the keyboard.
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
  // Some GPUs have a step without a command: a linked page tells the right PyTorch.
  if (record && lines.length > 1 && !part.querySelector("li[data-packaged=no]")) {
    const button = copyButton(element("code", lines.map((code) => code.textContent).join("\n")));
    button.textContent = "Copy all";
    record.before(button);
  }
}

