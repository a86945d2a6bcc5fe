// Keys, the selected row, the range of a timeline, and what an update must not take away. Every page works without this file.
"use strict";
(() => {
  let isGoing = false;
  let isPaused = false;
  // The selected row: its place, and what it shows.
  let selected = null;
  let drag = null;

  const rows = () => Array.from(document.querySelectorAll("#live tbody tr[data-row]"));
  const linkOf = row => row.querySelector("a");
  const keyOf = row => row.id || (linkOf(row) ? linkOf(row).getAttribute("href") : "");

  function mark(all, index) {
    all.forEach((one, at) => one.classList.toggle("selected", at === index));
    selected = all[index] ? { index, key: keyOf(all[index]) } : null;
    return all[index];
  }

  function select(step) {
    const all = rows();
    const row = mark(all, Math.max(0, Math.min(all.length - 1, selected ? selected.index + step : 0)));
    if (row) row.scrollIntoView({ block: "nearest" });
  }

  function pause() {
    isPaused = !isPaused;
    document.body.classList.toggle("paused", isPaused);
  }

  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const key = event.key;
    if (isGoing) {
      isGoing = false;
      const view = document.querySelector(`nav a[data-key="${CSS.escape(key)}"]`);
      if (view) view.click();
      return;
    }
    const search = document.querySelector("input[type=search]");
    const help = document.getElementById("keys");
    if (help && help.open) return;
    if (key === "g") isGoing = true;
    else if (key === "?" && help) help.showModal();
    else if (key === "j") select(1);
    else if (key === "k") select(-1);
    else if (key === "p") pause();
    else if (key === "Enter" && selected && !event.target.closest("a, button, summary")) {
      const row = rows()[selected.index];
      if (row && linkOf(row)) linkOf(row).click();
    } else if (key === "/" && search) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  });

  // Reads changes while the page is visible. A hidden page has no stream: a browser opens six connections to a server, for all of its
  // tabs together. What was missed meanwhile is one change.
  let hasMissed = document.hidden;
  class ChangeStream extends EventTarget {
    constructor(url) {
      super();
      this.url = url;
      this.source = null;
      this.isClosed = false;
      this.look = () => (document.hidden ? this.sleep() : this.wake());
      document.addEventListener("visibilitychange", this.look);
      this.look();
    }

    get readyState() {
      if (this.isClosed) return EventSource.CLOSED;
      return this.source ? this.source.readyState : EventSource.CONNECTING;
    }

    sleep() {
      hasMissed = true;
      if (this.source) this.source.close();
      this.source = null;
    }

    wake() {
      if (this.source || this.isClosed) return;
      const source = new EventSource(this.url);
      this.source = source;
      source.addEventListener("refresh", () => this.dispatchEvent(new Event("refresh")));
      source.onopen = event => {
        document.body.classList.remove("offline");
        if (this.onopen) this.onopen(event);
        if (hasMissed) this.dispatchEvent(new Event("refresh"));
        hasMissed = false;
      };
      source.onerror = event => {
        hasMissed = true;
        document.body.classList.add("offline");
        if (source.readyState === EventSource.CLOSED) this.close();
        if (this.onerror) this.onerror(event);
      };
    }

    close() {
      this.isClosed = true;
      document.removeEventListener("visibilitychange", this.look);
      if (this.source) this.source.close();
    }
  }
  if (window.htmx) window.htmx.createEventSource = url => new ChangeStream(url);

  // An update would take away what the reader has selected, or the range that is being chosen.
  document.addEventListener("htmx:beforeRequest", event => {
    const reads = window.getSelection && String(window.getSelection()) !== "";
    if (event.detail.elt.id === "live" && (isPaused || reads || drag)) event.preventDefault();
  });

  // What an update keeps: the focus, and how far wide parts are scrolled.
  let kept = null;
  const wide = () => Array.from(document.querySelectorAll("#live .scroll"));
  const focusable = () => Array.from(document.querySelectorAll("#live a, #live button, #live summary"));
  const address = one => `${one.tagName} ${one.getAttribute("href") || one.textContent}`;
  document.addEventListener("htmx:beforeSwap", event => {
    if (!event.detail.target || event.detail.target.id !== "live") return;
    const all = focusable();
    const focused = all.indexOf(document.activeElement);
    kept = { scrolled: wide().map(one => one.scrollLeft), focus: null };
    if (focused < 0) return;
    const own = address(all[focused]);
    kept.focus = { own, before: all.slice(0, focused).filter(one => address(one) === own).length };
  });
  document.addEventListener("htmx:afterSwap", () => {
    if (selected) {
      const all = rows();
      const isSame = at => all[at] && keyOf(all[at]) === selected.key;
      mark(all, isSame(selected.index) ? selected.index : all.findIndex((_, at) => isSame(at)));
    }
    if (!kept) return;
    const { scrolled, focus } = kept;
    kept = null;
    wide().forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
    if (!focus) return;
    const same = focusable().filter(one => address(one) === focus.own);
    const found = same[Math.min(focus.before, same.length - 1)];
    if (found) found.focus({ preventScroll: true });
  });

  // Choosing a range of the timeline with the pointer opens that range.
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

  function stopDrag() {
    if (drag) drag.band.remove();
    drag = null;
  }

  document.addEventListener("pointerdown", event => {
    const svg = event.target.closest && event.target.closest(".timeline-view svg.timeline");
    if (!svg || event.button !== 0) return;
    const isLink = Boolean(event.target.closest("a"));
    // A finger scrolls the drawing; the browser then cancels the pointer. A link keeps its click.
    if (event.pointerType !== "touch" && !isLink) event.preventDefault();
    const band = document.createElementNS(svg.namespaceURI, "rect");
    band.setAttribute("class", "tl-band");
    band.setAttribute("y", "20");
    band.setAttribute("height", svg.viewBox.baseVal.height - 24);
    svg.append(band);
    drag = { svg, band, isLink, from: place(svg, event) };
  });
  document.addEventListener("pointermove", event => {
    if (!drag) return;
    const to = place(drag.svg, event);
    drag.band.setAttribute("x", Math.min(drag.from, to));
    drag.band.setAttribute("width", Math.abs(to - drag.from));
  });
  document.addEventListener("pointercancel", stopDrag);
  // A link would be dragged away as such.
  document.addEventListener("dragstart", event => { if (drag) event.preventDefault(); });
  document.addEventListener("pointerup", event => {
    if (!drag) return;
    const { svg, isLink, from } = drag;
    const to = place(svg, event);
    stopDrag();
    const isClick = Math.abs(to - from) < 4;
    if (isClick && isLink) return;
    // The end of a range is no click on what is below it.
    if (!isClick) document.addEventListener("click", after => after.preventDefault(), { capture: true, once: true });
    const first = time(svg, Math.min(from, to));
    const last = time(svg, Math.max(from, to));
    if (first === null) return;
    if (isClick) open(query => query.set("at", first));
    else open(query => { query.set("from", first); query.set("until", Math.max(last, first + 1)); });
  });
})();
