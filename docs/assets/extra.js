// Commands name the index by its address: these pages are in its folder docs/.
if (location.protocol.startsWith("http")) {
  const index = new URL("..", location).href.replace(/\/$/, "");
  for (const code of document.querySelectorAll("pre code")) {
    const texts = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      texts.currentNode.data = texts.currentNode.data.replaceAll("<index>", index);
    }
  }
}

// What this index holds, beside the tables of what is built.
const held = document.getElementById("held");
if (held && location.protocol.startsWith("http")) {
  fetch("../wheels.json")
    .then((answer) => (answer.ok ? answer.json() : { wheels: [] }))
    .then(({ wheels }) => {
      const lines = wheels
        .filter((wheel) => wheel.yanked === null)
        .map((wheel) => `${wheel.project} ${wheel.version} for ROCm ${wheel.serves.join(", ")}`);
      if (lines.length) {
        held.textContent = `This index holds ${lines.join("; ")}.`;
      }
    })
    .catch(() => {}); // no index around these pages
}
