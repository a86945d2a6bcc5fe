// Finds what makes a page hard to use: text with little contrast, targets that are hard to touch, and parts that leave the screen.
// The value is a list of sentences; empty if nothing was found.
(isTouched => {
  "use strict";
  const found = [];
  const name = one => `${one.tagName.toLowerCase()}.${one.getAttribute("class") || ""} ${JSON.stringify(one.textContent.trim().slice(0, 40))}`;

  const parse = color => {
    const parts = color.match(/^rgba?\(([^)]+)\)$/);
    if (!parts) return null;
    const [r, g, b, a = 1] = parts[1].split(/[ ,/]+/).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a), g: top.g * top.a + below.g * (1 - top.a), b: top.b * top.a + below.b * (1 - top.a), a: 1,
  });
  const luminance = ({ r, g, b }) => {
    const linear = part => (part /= 255) <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const contrast = (one, other) => {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  const background = one => {
    const layers = [];
    for (let at = one; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color && color.a > 0) layers.push(color);
      if (color && color.a === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), { r: 255, g: 255, b: 255, a: 1 });
  };

  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const checked = new Set();
  while (texts.nextNode()) {
    const one = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || checked.has(one) || !one.checkVisibility()) continue;
    checked.add(one);
    if (["TITLE", "STYLE", "SCRIPT"].includes(one.tagName.toUpperCase())) continue;
    const style = getComputedStyle(one);
    const isDrawn = Boolean(one.ownerSVGElement);
    // A label covers the bar next to it.
    const bar = isDrawn && one.classList.contains("tl-label") ? one.parentElement.querySelector("rect") : null;
    const color = parse(isDrawn ? style.fill : style.color);
    const behind = bar ? parse(getComputedStyle(bar).fill) : background(one);
    if (!color || !behind) { found.push(`the color of ${name(one)} is not known: ${style.color} ${style.fill}`); continue; }
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.5 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const has = contrast(over(color, behind), behind);
    if (has < needed) found.push(`contrast ${has.toFixed(2)} of ${name(one)}`);
  }
  if (checked.size < 20) found.push(`only ${checked.size} texts were checked`);

  // On a phone the width of the window grows with what does not fit.
  const { scrollWidth: width, clientWidth: screenWidth } = document.documentElement;
  if (width > screenWidth) {
    const wide = [...document.body.querySelectorAll("*")].filter(one => one.getBoundingClientRect().right > screenWidth + 1 && !one.closest(".scroll, pre, .skip, svg"));
    found.push(`the page is ${width} wide on a screen of ${screenWidth}: ${wide.slice(0, 4).map(name)}`);
  }
  if (isTouched) {
    for (const one of document.querySelectorAll("nav a, .button, button, select, label.check, input:not([type=hidden], [type=checkbox])")) {
      const box = one.getBoundingClientRect();
      if (one.checkVisibility() && (box.height < 36 || box.width < 36)) found.push(`${name(one)} is ${box.width.toFixed(0)} by ${box.height.toFixed(0)}`);
    }
    for (const one of document.querySelectorAll("td a, .tree a")) {
      const box = one.getBoundingClientRect();
      if (one.checkVisibility() && box.height < 24) found.push(`the link ${name(one)} is ${box.height.toFixed(0)} high`);
    }
  }
  for (const one of document.querySelectorAll("svg text")) {
    const box = one.getBoundingClientRect();
    const around = one.ownerSVGElement.getBoundingClientRect();
    if (box.width > 0 && (box.left < around.left - 1 || box.right > around.right + 1)) found.push(`${name(one)} is cut off`);
  }
  return found;
})
