// Which GPUs a text names: a name that was typed, or a longer line that somebody pasted.  Pure: it reads no page.
// A GPU is {arch, names, chips}: product names (processors among them), and what lspci and drivers call its chip.
"use strict";

// They say nothing of which GPU it is, wherever they stand.
const IDLE = new Set("amd ati radeon instinct graphics rx pro mobile series gpu athlon threadripper w with".split(" "));
const OTHERS = /\b(nvidia|geforce|quadro|tesla|[rg]tx|intel|arc)\b/;
const OURS = /\b(amd|ati|radeon|ryzen|instinct)\b|gfx\d/;

function unmarked(text) {
  return text.toLowerCase().replace(/\((tm|r|c)\)|[™®]/g, " ");
}

// "AMD Radeon RX 7900-XTX", "rx7900xtx" and "RX 7900 XTX (RADV NAVI31)" all begin with the words 7900, xtx.  "ryzen"
// stays before a bare number: the graphics of a Ryzen 5 7600 are not those of an RX 7600.
function words(text) {
  const apart = unmarked(text)
    .replace(/\b(rx|[a-z]{4,})(?=\d)/g, "$1 ")
    .replace(/\bryzen\W+(?:threadripper\W+)?(?:[3579]\W+)?(?:pro\W+)?(?=\d)/g, "ryzen ");
  const all = apart.split(/[^a-z0-9]+/).filter(Boolean);
  return all.filter((word, at) => !IDLE.has(word) && (word !== "ryzen" || /^\d+$/.test(all[at + 1] ?? "")));
}

// How many words from there on are the key: "van gogh" and "vangogh" are.
function held(all, key, at) {
  return all[at] === key.join("") ? 1 : key.every((word, step) => all[at + step] === word) ? key.length : 0;
}

// A bare number is a product's only where a graphics card's can stand: not in "Ryzen 7 5700" or "i5-7600", and one
// of three digits only after "RX".
function stands(all, key, at, text) {
  if (!/^\d+$/.test(key[0])) {
    return true;
  }
  const card = /(^|[^a-z])rx(?![a-z])/i.test(text);
  return !/^(ryzen|i[3579]|core|ultra)$/.test(all[at - 1] ?? "") && (key[0].length > 3 || card || all.length === 1);
}

// Every name in the text as [gpu, name]; where names begin at the same word, the longest.
function found(text, named) {
  const all = words(text);
  return all.flatMap((_, at) => {
    const here = named.filter(([, , key]) => held(all, key, at) && stands(all, key, at, text));
    const longest = Math.max(...here.map(([, , key]) => held(all, key, at)));
    return here.filter(([, , key]) => held(all, key, at) === longest).map(([gpu, name]) => [gpu, name]);
  });
}

function keyed(gpus, part) {
  return gpus.flatMap((gpu) => gpu[part].map((name) => [gpu, name, words(name)]));
}

// The GPUs that a text names by gfx arch, and no others: rocminfo also prints what every GPU of a family is.
function byArch(text, gpus) {
  const named = new Set(text.toLowerCase().match(/gfx\d{1,2}[0-9a-f]{2}/g) ?? []);
  return gpus.filter((gpu) => named.has(gpu.arch)).map((gpu) => [gpu, gpu.arch]);
}

// By a part of a name: "mi300", "strix", "RX 7900" in a longer text.
function byPart(text, gpus) {
  const all = words(text);
  const typed = unmarked(text).replace(/\bamd\b/g, " ").replace(/\s+/g, " ").trim();
  const named = [...keyed(gpus, "names"), ...keyed(gpus, "chips")];
  const parts = named.filter(
    ([, name, key]) => typed && ((all.length && key.join("").includes(all.join(""))) || unmarked(name).includes(typed)),
  );
  const begun = named.filter(([, , key]) =>
    all.some((word, at) => /\d{3}/.test(word) && word === key[0] && stands(all, key, at, text)),
  );
  return (parts.length ? parts : begun).map(([gpu, name]) => [gpu, name]);
}

// All that a text names, as [gpu, name] pairs.  Product names count before chips, which decide between several:
// some boards are called like another GPU's chip.
function match(text, gpus) {
  const archs = byArch(text, gpus);
  if (archs.length || (OTHERS.test(text.toLowerCase()) && !OURS.test(text.toLowerCase()))) {
    return archs;
  }
  const names = found(text, keyed(gpus, "names"));
  const chips = found(text, keyed(gpus, "chips"));
  const both = names.filter(([gpu]) => chips.some(([other]) => other === gpu));
  const hits = [both, names, chips].find((each) => each.length);
  return hits ?? byPart(text, gpus);
}
