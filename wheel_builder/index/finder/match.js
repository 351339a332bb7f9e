// The GPUs named in a text: a typed name, or a longer pasted line. Pure: it reads no page.
// A GPU is {arch, names, chips, pci}: product names (including processors), its chip's names in lspci and drivers, and
// its device numbers. No answer is better than a wrong one: only complete names count.
"use strict";

// In any position these words are useless for finding the GPU.
const IDLE = new Set("amd ati radeon instinct graphics rx pro mobile series gpu athlon threadripper w with".split(" "));
const OTHERS = /\b(nvidia|geforce|quadro|tesla|[rg]tx|gts?|intel|arc|xeon|iris|uhd|(?:0x)?(?:8086|10de))\b/;
const OURS = /\b(amd|ati|radeon|ryzen|instinct|(?:0x)?1002)\b|gfx\s?\d|\brx\W?\d{3}/;
// Products of other makers, and Radeons older than ROCm, with numbers like ours: "i9-7900X", "HD 7700".
const THEIRS = /\b(?:geforce|quadro|tesla|[rg]tx|gts?|mx|arc|iris|u?hd|xeon|i[3579])[\s-]+(?:[a-z]+[\s-]+)?[a-z]?\d{3,5}\w*/g;

function unmarked(text) {
  return text.toLowerCase().replace(/\((tm|r|c)\)|[™®]/g, " ");
}

// "AMD Radeon RX 7900-XTX", "rx7900xtx" and "RX 7900 XTX (RADV NAVI31)" all begin with the words 7900, xtx. "ryzen"
// is kept before a bare number: the graphics of a Ryzen 5 7600 differ from an RX 7600.
function words(text) {
  const apart = unmarked(text)
    .replace(THEIRS, " ")
    .replace(/\bmi[\s-]+(?=\d)/g, "mi")
    .replace(/\b(rx|hx|[a-z]{4,})(?=\d)/g, "$1 ")
    .replace(/\bryzen\W+(?:threadripper\W+)?(?:[3579]\W+)?(?:pro\W+)?(?=\d)/g, "ryzen ");
  const all = apart.split(/[^a-z0-9]+/).filter(Boolean);
  return all.filter((word, at) => !IDLE.has(word) && (word !== "ryzen" || /^\d+$/.test(all[at + 1] ?? "")));
}

// The number of words from there on that equal the key: "van gogh" and "vangogh" are equal.
function held(all, key, at) {
  return all[at] === key.join("") ? 1 : key.every((word, step) => all[at + step] === word) ? key.length : 0;
}

// A bare number names a product only in the place of a graphics card: it does not in "Ryzen 7 5700" or "i5-7600".
// A number of three digits needs "RX" before it.
function stands(all, key, at, text) {
  if (!/^\d+$/.test(key[0])) {
    return true;
  }
  const card = /(^|[^a-z])rx(?![a-z])/i.test(text);
  return !/^(ryzen|i[3579]|core|ultra)$/.test(all[at - 1] ?? "") && (key[0].length > 3 || card || all.length === 1);
}

// Every name in the text as [gpu, name]. Of names that begin at the same word, the longest.
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

// Only the GPUs that a text names by gfx arch. rocminfo also prints names shared by a whole family.
function byArch(text, gpus) {
  const named = new Set([...text.toLowerCase().matchAll(/gfx[\s_-]?(\d{1,2}[0-9a-f]{2})/g)].map(([, number]) => `gfx${number}`));
  return gpus.filter((gpu) => named.has(gpu.arch)).map((gpu) => [gpu, gpu.arch]);
}

// The GPUs that a text names by PCI numbers, in the forms of lspci -nn, Windows, dxdiag and lspci without a name.
// Other makers' numbers are other devices: 8086:1902 is Intel's.
function byPci(text, gpus) {
  const low = text.toLowerCase();
  const pairs = /\b1002:([0-9a-f]{4})\b|ven_1002&dev_([0-9a-f]{4})/g;
  const alone = OTHERS.test(low) && !OURS.test(low) ? [] : [...low.matchAll(/\b0x([0-9a-f]{4})\b/g)];
  const unnamed = /\b(amd|ati)\b/.test(low) ? [...low.matchAll(/\bdevice ([0-9a-f]{4})\b/g)] : [];
  const ids = new Set([...low.matchAll(pairs), ...alone, ...unnamed].map(([, one, other]) => one ?? other));
  return gpus.flatMap((gpu) => gpu.pci.filter((id) => ids.has(id)).map((id) => [gpu, `1002:${id}`]));
}

// Whether a typed word matches a word of a name: all of it, or its beginning unless that is another number.
// "mi300" matches MI300X, "550" does not match 5500. "8060" matches 8060S if it is the only typed word.
function begins(typed, word, alone) {
  if (word === typed) {
    return true;
  }
  const long = /[a-z]/.test(typed) ? typed.length > 1 : alone && typed.length > 2;
  return long && word.startsWith(typed) && !(/\d$/.test(typed) && /\d/.test(word[typed.length]));
}

// By a part of a name: "mi300", "strix", "RX 7900" in a longer text.
function byPart(text, gpus) {
  const all = words(text);
  const named = [...keyed(gpus, "names"), ...keyed(gpus, "chips")];
  const alone = /^\s*\d+\s*$/.test(text);
  const parts = named.filter(([, name, key]) => (all.length ? partOf(all, key, alone) : generic(text, name)));
  const begun = named.filter(([, , key]) =>
    all.some((word, at) => /\d{3}/.test(word) && word === key[0] && stands(all, key, at, text)),
  );
  return (parts.length ? parts : begun).map(([gpu, name]) => [gpu, name]);
}

// Whether the words follow each other in a name. The last one may be incomplete.
function partOf(all, key, alone) {
  return key.some((_, at) =>
    all.every((word, step) =>
      step < all.length - 1 ? key[at + step] === word : begins(word, key[at + step] ?? "", alone),
    ),
  );
}

// "AMD Radeon(TM) Graphics" only tells that the GPU is part of a processor.
function generic(text, name) {
  const typed = unmarked(text).replace(/\bamd\b/g, " ").replace(/\s+/g, " ").trim();
  return /\bgraphics\b/.test(typed) && unmarked(name).startsWith(typed);
}

// Everything named in a text, as [gpu, name] pairs. Product names come before chips, because some boards have the
// name of another GPU's chip. Chips decide between several products.
function match(text, gpus) {
  const named = byArch(text, gpus);
  const archs = named.length ? named : byPci(text, gpus);
  if (archs.length || (OTHERS.test(text.toLowerCase()) && !OURS.test(text.toLowerCase()))) {
    return archs;
  }
  const names = found(text, keyed(gpus, "names"));
  const chips = found(text, keyed(gpus, "chips"));
  const both = names.filter(([gpu]) => chips.some(([other]) => other === gpu));
  const hits = [both, names, chips].find((each) => each.length);
  return hits ?? byPart(text, gpus);
}
