// Shows one answer for the typed GPU: the steps, or the reason for missing kernels and the alternatives.
// All words about wheels are in the page already. This script only selects from them.
const form = document.getElementById("choices");
const answer = document.getElementById("answer");
const rows = [...document.querySelectorAll("tbody tr")];
const gpus = rows.map((row) => {
  const [names, chips] = [row.dataset.names, row.dataset.chips].map((text) => text.split("\n").filter(Boolean));
  return { row, arch: row.dataset.arch, names, chips, pci: row.dataset.pci.split(" ").filter(Boolean) };
});
const [gpu, rocm, system, tool] = ["gpu", "rocm", "system", "tool"].map((id) => document.getElementById(id));

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

// The target of the answer. On Windows one wheel serves every ROCm version.
function wanted() {
  const { offer } = chosen(system).dataset;
  return offer
    ? { choice: system, offer, name: system.value, other: "other-system" }
    : { choice: rocm, offer: rocm.value, name: `ROCm ${rocm.value}`, other: "other-rocm" };
}

// The instructions for a GPU that PyTorch has no kernels for.
function forTorch(row) {
  const made = row.dataset.override ? [copyOf(`override-${row.dataset.override}`)] : [];
  if (row.dataset.withoutTorch.split(" ").includes(rocm.value)) {
    made.push(copyOf("older-torch"));
  }
  made.forEach(addCopyButtons);
  return made;
}

// The steps for the chosen ROCm version, system and tool, and the facts about the wheel and this arch.
function steps(row) {
  const offer = [...document.querySelectorAll(".offer")].find((each) => each.dataset.rocm === wanted().offer);
  if (!offer) {
    return [];
  }
  const copy = offer.cloneNode(true);
  for (const step of copy.querySelectorAll("li")) {
    const { systems, tools, packaged, own, gpus } = step.dataset;
    const mine = systems.split(" ").includes(system.value) && tools.split(" ").includes(tool.value);
    const fits = mine && (!gpus || gpus.split(" ").includes(row.dataset.arch));
    const served = (!packaged || packaged === row.dataset.packaged) && (!own || own === row.dataset.own);
    if (!fits || !served) {
      step.remove();
    }
  }
  for (const code of copy.querySelectorAll("pre code")) {
    code.textContent = code.textContent.replace("[device-GFX]", `[device-${row.dataset.arch}]`);
  }
  addCopyButtons(copy);
  const parts = [...copy.children].filter(
    (part) => part.tagName !== "SUMMARY" && [undefined, row.dataset.arch].includes(part.dataset.arch),
  );
  const documents = document.getElementById("documentation") ? [copyOf("documentation")] : [];
  return [...parts, ...documents];
}

// A title and the text below it. The facts that users can least change come first.
function answerFor(row) {
  const { choice, offer, name, other } = wanted();
  const missing = chosen(choice).dataset.reason;
  const lack = row.dataset.reason || (!missing && JSON.parse(row.dataset.lacks)[offer]);
  if (lack) {
    const why = refusal(`Why it has no kernels: ${lack}.`);
    return ["what works without kernels", copyOf("works"), why, ...steps(row)];
  }
  if (missing) {
    return ["no wheel", refusal(`${name} is not supported: ${missing}.`), copyOf(other)];
  }
  if (system.value === "WSL2" && row.dataset.wsl === "no") {
    return ["not in WSL2", copyOf("not-on-wsl")];
  }
  return ["your steps", ...(choice === rocm ? forTorch(row) : []), ...steps(row)];
}

function choice(found, name) {
  const button = element("button", `${name} (${found.arch})`);
  button.type = "button";
  button.addEventListener("click", () => {
    gpu.value = name;
    show();
    gpu.focus();
  });
  return button;
}

function show() {
  // Fields without effect on the answer: on Windows the ROCm version, in Docker the tool.
  rocm.parentNode.hidden = wanted().choice !== rocm;
  tool.parentNode.hidden = system.value === "Docker";
  const typed = gpu.value.trim();
  const hits = typed ? match(typed, gpus) : [];
  const found = [...new Set(hits.map(([each]) => each))];
  for (const row of rows) {
    row.hidden = found.length > 0 && !found.some((each) => each.row === row);
  }
  answer.hidden = !typed;
  if (found.length === 1) {
    const [{ row, arch }] = found;
    // With several names for one chip, the user's product is unknown.
    const names = new Set(hits.map(([, name]) => name));
    const name = names.size > 1 ? typed : [...names][0];
    const [what, ...said] = answerFor(row);
    answer.replaceChildren(element("h2", `${name === arch ? name : `${name} (${arch})`}: ${what}`), ...said);
    addCopyAll(answer);
  } else if (found.length) {
    const buttons = found.map((each) => choice(each, hits.find(([other]) => other === each)[1]));
    answer.replaceChildren(element("h2", `“${typed}” matches ${found.length} GPUs: choose one`), ...buttons);
  } else {
    answer.replaceChildren(element("h2", `“${typed}”`), copyOf("unknown"), copyOf(`ask-${system.value}`));
    addCopyButtons(answer);
  }
}

const here = new URL(".", location.href).href.replace(/\/$/, "");
for (const code of document.querySelectorAll("pre code")) {
  code.textContent = code.textContent.replace("INDEX/", `${here}/`);
}
document.getElementById("address").hidden = true;
form.hidden = false;
if (/^win/i.test(navigator.userAgentData?.platform ?? navigator.platform)) {
  system.value = "Windows";
}
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", show);
show();
