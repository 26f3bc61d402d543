"use strict";
// Draws the charts of every page: Vega-Lite specs in the reader's colours, drawn when they come into sight.

// Reads the page's data: JSON, or much of it as Base64 of gzip.
async function pageData() {
  const text = document.getElementById("data").textContent;
  if (text.startsWith("{")) return JSON.parse(text);
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// charts: specs by the name that a figure's data-chart gives. tipOf(datum, value): [label, text] pairs of a tooltip, the
// first its heading. clicked(datum): a mark was clicked.
function chartDrawer({ palettes, charts, tipOf, clicked }) {
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function themed(spec, palette) {
    if (typeof spec === "string") return spec.startsWith("$") && Object.hasOwn(palette, spec.slice(1)) ? palette[spec.slice(1)] : spec;
    if (Array.isArray(spec)) return spec.map((item) => themed(item, palette));
    if (spec === null || typeof spec !== "object") return spec;
    // Data is copied, not walked: Vega marks the rows it is given, and a name may well spell "$bad".
    return Object.fromEntries(
      Object.entries(spec).map(([k, v]) => [k, k === "data" || k === "datasets" ? structuredClone(v) : themed(v, palette)]),
    );
  }

  function fitted(spec, width) {
    spec.width = width;
    if (width < 480) {
      spec.config.axisY = { ...spec.config.axisY, labelLimit: Math.round(width * 0.36) };
      spec.layer = spec.layer.filter((layer) => layer.name !== "wide-only");
    }
    return spec;
  }

  const tip = element("div", "tip");
  tip.hidden = true;
  document.body.append(tip);

  function showTip(_handler, event, item, value) {
    tip.hidden = value === null || typeof value !== "object";
    if (tip.hidden) return;
    const [first, ...rest] = tipOf(item?.datum, value);
    const list = element("dl");
    for (const [label, text] of rest) list.append(element("dt", "", label), element("dd", "", String(text)));
    tip.replaceChildren(element("b", "test", String(first[1])), list);
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(event.clientX + 14, innerWidth - box.width - 6))}px`;
    tip.style.top = `${event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 16}px`;
  }

  const drawn = new Map();

  async function draw(container, spec) {
    if (!window.vegaEmbed) return;
    const width = container.clientWidth;
    if (width <= 0) return;
    drawn.get(container)?.view.finalize();
    const palette = palettes[dark.matches ? "dark" : "light"];
    const points = Math.max(0, ...spec.layer.map((layer) => layer.data?.values?.length ?? 0));
    const result = await window.vegaEmbed(container, fitted(themed(spec, palette), width), {
      actions: false,
      ast: true, // the interpreter: the policy forbids evaluating text as code
      defaultStyle: false,
      renderer: points > 1000 ? "canvas" : "svg",
      tooltip: showTip,
      loader: { load: () => Promise.reject(new Error("charts load nothing")) },
    });
    drawn.set(container, { view: result.view, spec, width: container.clientWidth });
    result.view.addEventListener("click", (_event, item) => {
      if (matchMedia("(pointer: fine)").matches) clicked(item?.datum);
    });
  }

  function redraw(force) {
    for (const [container, { spec, width }] of drawn) {
      if (force || Math.abs(container.clientWidth - width) > 8) draw(container, spec);
    }
  }

  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        draw(entry.target, charts[entry.target.dataset.chart]);
      }
    },
    { rootMargin: "600px" },
  );
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    figure.style.minHeight = `${charts[figure.dataset.chart].height ?? 160}px`;
    seen.observe(figure);
  }
  dark.addEventListener("change", () => redraw(true));
  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => redraw(false), 150);
  });
  addEventListener("scroll", () => (tip.hidden = true), { passive: true });
  // Paper has no scrolling: what has not come into sight yet is drawn before it is printed.
  addEventListener("beforeprint", () => {
    for (const figure of document.querySelectorAll("figure[data-chart]:empty")) draw(figure, charts[figure.dataset.chart]);
  });
}
