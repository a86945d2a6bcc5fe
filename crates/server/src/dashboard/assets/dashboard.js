// Keys, the selected row, and the range of a timeline. Every page works without this file.
"use strict";
(() => {
  let goes = false;
  let row = -1;
  let paused = false;

  const rows = () => Array.from(document.querySelectorAll("#live tbody tr[data-row]"));

  function select(index) {
    const all = rows();
    row = Math.max(0, Math.min(all.length - 1, index));
    all.forEach((one, at) => one.classList.toggle("selected", at === row));
    if (all[row]) all[row].scrollIntoView({ block: "nearest" });
  }

  function pause() {
    paused = !paused;
    document.body.classList.toggle("paused", paused);
  }

  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const key = event.key;
    if (goes) {
      goes = false;
      const view = document.querySelector(`nav a[data-key="${CSS.escape(key)}"]`);
      if (view) view.click();
      return;
    }
    const search = document.querySelector("input[type=search]");
    const help = document.getElementById("keys");
    if (key === "g") goes = true;
    else if (key === "?" && help) help.showModal();
    else if (key === "j") select(row + 1);
    else if (key === "k") select(row - 1);
    else if (key === "p") pause();
    else if (key === "Enter" && row >= 0 && event.target === document.body) {
      const link = rows()[row] && rows()[row].querySelector("a");
      if (link) link.click();
    } else if (key === "/" && search) {
      event.preventDefault();
      search.focus();
    }
  });

  // An update would take away what the reader has selected, or the range that is being chosen.
  document.addEventListener("htmx:beforeRequest", event => {
    const reads = window.getSelection && String(window.getSelection()) !== "";
    if (event.detail.elt.id === "live" && (paused || reads || drag)) event.preventDefault();
  });
  document.addEventListener("htmx:afterSettle", () => { if (row >= 0) select(row); });

  // Choosing a range of the timeline with the pointer opens that range.
  let drag = null;
  const place = (svg, event) => {
    const box = svg.getBoundingClientRect();
    return (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
  };

  // The scale of the drawing: pairs of places and times.
  function time(svg, x) {
    const points = (svg.parentElement.dataset.scale || "").split(" ").filter(Boolean).map(pair => pair.split(":").map(Number));
    if (points.length < 2) return null;
    let at = points.findIndex(point => point[0] >= x);
    if (at < 1) at = at === 0 ? 1 : points.length - 1;
    const [left, from] = points[at - 1];
    const [right, until] = points[at];
    const share = Math.min(1, Math.max(0, (x - left) / (right - left || 1)));
    return Math.round(from + (until - from) * share);
  }

  function open(change) {
    const url = new URL(location.href);
    change(url.searchParams);
    url.hash = "";
    location.assign(url);
  }

  document.addEventListener("pointerdown", event => {
    const svg = event.target.closest && event.target.closest(".timeline-view svg.timeline");
    if (!svg || event.button !== 0 || event.target.closest("a")) return;
    event.preventDefault();
    const band = document.createElementNS(svg.namespaceURI, "rect");
    band.setAttribute("class", "tl-hatch");
    band.setAttribute("y", "20");
    band.setAttribute("height", svg.viewBox.baseVal.height - 24);
    svg.append(band);
    drag = { svg, band, from: place(svg, event) };
  });
  document.addEventListener("pointermove", event => {
    if (!drag) return;
    const to = place(drag.svg, event);
    drag.band.setAttribute("x", Math.min(drag.from, to));
    drag.band.setAttribute("width", Math.abs(to - drag.from));
  });
  document.addEventListener("pointerup", event => {
    if (!drag) return;
    const { svg, band, from } = drag;
    const to = place(svg, event);
    drag = null;
    band.remove();
    const first = time(svg, Math.min(from, to));
    const last = time(svg, Math.max(from, to));
    if (first === null) return;
    if (Math.abs(to - from) < 4) open(query => query.set("at", first));
    else open(query => { query.set("from", first); query.set("until", Math.max(last, first + 1)); });
  });
})();
