// What a page can be asked of itself: contrast, sizes of targets, and whether it fits its window. An expression.
(() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = color;
    pen.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (front, back) => [0, 1, 2].map((part) => front[part] * front[3] + back[part] * (1 - front[3])).concat(1);
  const ground = (node) => {
    const layers = [];
    for (let one = node; one; one = one.parentElement) layers.push(rgba(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((back, front) => over(front, back), [255, 255, 255, 1]);
  };
  const light = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((part) => part / 255).map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  const seen = (node) => node.checkVisibility({ visibilityProperty: true }) && !node.closest(".unseen, .skip, .sprite, .surface");
  const faint = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let looked = 0;
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !seen(node) || node.closest(":disabled")) continue;
    looked += 1;
    const style = getComputedStyle(node);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const found = ratio(over(rgba(style.color), ground(node)), ground(node));
    if (found < (large ? 3 : 4.5)) faint.push(`${found.toFixed(2)}: ${texts.currentNode.data.trim().slice(0, 40)}`);
  }
  const small = [...document.querySelectorAll("button, select, summary, input:not([type=file])")]
    .filter((node) => seen(node))
    .map((node) => [node.closest("label") ?? node, node])
    .filter(([area]) => area.getBoundingClientRect().height < 24 || area.getBoundingClientRect().width < 24)
    .map(([, node]) => node.outerHTML.slice(0, 80));
  return { looked, faint, small, wide: document.scrollingElement.scrollWidth - document.documentElement.clientWidth };
})()
