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
