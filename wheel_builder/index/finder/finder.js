// Finds the GPU that was typed, and shows one answer: a command to copy, or why there is none and what to do.
// All words about wheels are in the page already; this only chooses among them.
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

function refusal(text) {
  const made = element("p", text);
  made.className = "no";
  return made;
}

function copyOf(id) {
  const found = document.getElementById(id);
  const made = found ? found.cloneNode(true) : element("p", "");
  made.removeAttribute("id");
  return made;
}

function chosen(select) {
  return select.selectedOptions[0];
}

// "AMD Radeon RX 7900-XTX" and "rx7900xtx" are the same name.
function plain(name) {
  return name.toLowerCase().replace(/\b(amd|radeon|instinct|graphics)\b|\(tm\)/g, "").replace(/[^a-z0-9]/g, "");
}

// What was typed as [row, name] pairs, one for each arch that it fits; a whole name beats parts of others.
function matches(typed) {
  const wanted = plain(typed) || typed.toLowerCase().trim();
  const named = rows.flatMap((row) => row.dataset.names.split("\n").map((name) => [row, name]));
  const whole = named.filter(([, name]) => plain(name) === wanted);
  const found = whole.length ? whole : named.filter(([, name]) => plain(name).includes(wanted));
  return found.filter(([row], index) => found.findIndex(([other]) => other === row) === index);
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

// The command for the chosen ROCm version and tool, and what is known of its wheel and this arch.
function command(row) {
  const offer = [...document.querySelectorAll(".offer")].find((each) => each.dataset.rocm === rocm.value);
  if (!offer) {
    return [];
  }
  const parts = [...offer.cloneNode(true).children].filter(
    (part) =>
      part.tagName !== "SUMMARY" &&
      [undefined, tool.value].includes(part.dataset.tool) &&
      [undefined, row.dataset.arch].includes(part.dataset.arch),
  );
  const note = element("p", `torch ${torch.value}: ${chosen(torch).dataset.note}.`);
  return [parts[0], copyButton(parts[0].querySelector("code")), ...parts.slice(1), note];
}

// A title, and what is said below it; first what the user can least change.
function answerFor(row) {
  const cell = [...row.children].find((each) => each.dataset.rocm === rocm.value);
  const lack = row.dataset.reason || (cell && !chosen(rocm).dataset.reason && cell.dataset.reason);
  if (lack) {
    return ["no kernels", refusal(`Not served: ${lack}.`), copyOf("instead"), ...command(row)];
  }
  const missing = chosen(rocm).dataset.reason;
  if (missing) {
    return ["no wheel", refusal(`ROCm ${rocm.value} is not served: ${missing}.`), copyOf("other-rocm")];
  }
  if (chosen(torch).dataset.reason) {
    return ["no wheel", refusal(`torch ${torch.value} is not served: ${chosen(torch).dataset.reason}.`)];
  }
  return ["your command", ...command(row)];
}

function choice(row, name) {
  const button = element("button", `${name} (${row.dataset.arch})`);
  button.type = "button";
  button.addEventListener("click", () => {
    gpu.value = name;
    show();
    gpu.focus();
  });
  return button;
}

function show() {
  const typed = gpu.value.trim();
  const found = typed ? matches(typed) : [];
  for (const row of rows) {
    row.hidden = found.length > 0 && !found.some(([each]) => each === row);
  }
  answer.hidden = !typed;
  if (found.length === 1) {
    const [[row, name]] = found;
    const title = name === row.dataset.arch ? name : `${name} (${row.dataset.arch})`;
    const [what, ...said] = answerFor(row);
    answer.replaceChildren(element("h2", `${title}: ${what}`), ...said);
  } else if (found.length) {
    const buttons = found.map(([row, name]) => choice(row, name));
    answer.replaceChildren(element("h2", `“${typed}” fits ${found.length} GPUs: which one?`), ...buttons);
  } else {
    answer.replaceChildren(element("h2", `“${typed}”`), copyOf("unknown"), copyOf("ask"));
  }
}

const here = new URL(".", location.href).href.replace(/\/$/, "");
for (const code of document.querySelectorAll("pre code")) {
  code.textContent = code.textContent.replace("INDEX/", `${here}/`);
}
document.getElementById("address").hidden = true;
form.hidden = false;
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", show);
show();
