// Filters the table by what was chosen, and shows the one answer: a command to copy, or why there is none.
// All words are in the page already; this only chooses among them.
"use strict";

const form = document.getElementById("choices");
const answer = document.getElementById("answer");
const rows = [...document.querySelectorAll("tbody tr")];
const [gpu, rocm, torch, tool] = ["gpu", "rocm", "torch", "tool"].map((id) => document.getElementById(id));

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function fits(row) {
  return row.dataset.arch === gpu.value && ["", rocm.value].includes(row.dataset.rocm);
}

function chosen(select) {
  return select.selectedOptions[0];
}

// Why nothing can be installed, beginning with what the user can least change.
function refusal(row) {
  if (row && row.querySelector(".no")) {
    return row.querySelector(".no").textContent;
  }
  for (const [select, name] of [[rocm, "ROCm"], [torch, "torch"]]) {
    const reason = chosen(select).dataset.reason;
    if (reason) {
      return `Not served with ${name} ${select.value}: ${reason}.`;
    }
  }
  return "";
}

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

function command(row) {
  const parts = [...row.lastElementChild.cloneNode(true).children];
  const shown = parts.filter((part) => [undefined, tool.value].includes(part.dataset.tool));
  const note = element("p", `torch ${torch.value}: ${chosen(torch).dataset.note}.`);
  return [shown[0], copyButton(shown[0].querySelector("code")), ...shown.slice(1), note];
}

function show() {
  for (const row of rows) {
    row.hidden = Boolean(gpu.value) && !fits(row);
  }
  answer.hidden = !gpu.value;
  if (!gpu.value) {
    return;
  }
  const row = rows.find(fits);
  const reason = refusal(row);
  const heading = element("h2", `${chosen(gpu).textContent}: ${reason ? "no wheel" : "your command"}`);
  const said = reason ? [element("p", reason)] : command(row);
  if (reason) {
    said[0].className = "no";
  }
  answer.replaceChildren(heading, ...said);
}

const here = new URL(".", location.href).href.replace(/\/$/, "");
for (const code of document.querySelectorAll("pre code")) {
  code.textContent = code.textContent.replace("INDEX", here);
}
form.hidden = false;
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", show);
show();
