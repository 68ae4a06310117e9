// The legends, which show and hide methods in all figures at once.

const MANY = 8;  // methods; of more, only the best are shown at first
const BEST = 6;
state.shown = "best";  // "best", "all", "none", or "own" after a choice of the reader's

const SHAPES = {
  circle: "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", square: "M-3.5,-3.5h7v7h-7z", diamond: "M0,-5L4.5,0L0,5L-4.5,0z",
  "triangle-up": "M0,-4.5L4.5,4H-4.5z", "triangle-down": "M0,4.5L4.5,-4H-4.5z",
  cross: "M-1.5,-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z", x: "M-4,-2L-2,-4L0,-2L2,-4L4,-2L2,0L4,2L2,4L0,2L-2,4L-4,2L-2,0z",
  star: "M0,-5L1.3,-1.7L4.8,-1.5L2.1,.7L3,4.1L0,2.2L-3,4.1L-2.1,.7L-4.8,-1.5L-1.3,-1.7z",
};
const DASHES = { solid: "", dash: "6 4", dot: "2 3", dashdot: "7 3 2 3" };

function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// What a trace looks like: its line, its symbol, or both.
function sample({ mode, line, marker }) {
  const width = mode.includes("lines") ? 34 : 12;
  const svg = drawn("svg", { viewBox: `${-width / 2} -6 ${width} 12`, width, "aria-hidden": "true" });
  if (mode.includes("lines")) svg.append(drawn("path", {
    d: "M-17,0H17", fill: "none", stroke: line.color, "stroke-width": 2,
    "stroke-dasharray": DASHES[line.dash ?? "solid"] ?? line.dash.replace(/px/g, "").replace(/,/g, " "),
  }));
  const symbol = marker?.symbol;
  if (symbol) svg.append(drawn("path", { d: SHAPES[symbol.replace("-open", "")], ...(symbol.endsWith("-open") ? { fill: "none", stroke: marker.color } : { fill: marker.color }) }));
  return svg;
}

// One entry per group of traces, the best method first.
function fillLegend(legend, traces) {
  const groups = new Map();
  for (const trace of traces) if (!groups.has(trace.legendgroup) && trace.showlegend !== false) groups.set(trace.legendgroup, trace);
  const place = (name) => comparison().ranking.indexOf(name) + 1 || Infinity;
  const names = [...groups.keys()].sort((a, b) => place(a) - place(b) || 0);
  const focused = legend.contains(document.activeElement) ? document.activeElement.textContent : null;
  const entries = names.map((name) => {
    const entry = element("button", "", { type: "button", class: "entry", "aria-pressed": !state.hidden.has(name), "data-group": name });
    entry.append(sample(groups.get(name)), groups.get(name).meta ?? name);
    return entry;
  });
  const choices = names.filter((name) => data.methods.includes(name)).length > MANY
    ? [["best", `Best ${BEST}`], ["all", "All"], ["none", "None"]].map(([shown, text]) =>
      element("button", text, { type: "button", class: "choice", "aria-pressed": state.shown === shown, "data-shown": shown }))
    : [];
  legend.replaceChildren(...choices, ...entries);
  [...legend.children].find((button) => button.textContent === focused)?.focus();
}

function show(shown) {
  const methods = comparison().ranking;
  const best = methods.length > MANY ? BEST : methods.length;
  state.shown = shown;
  state.hidden = new Set(methods.slice({ best, all: methods.length, none: 0 }[shown]));
}

function pressLegend({ target }) {
  const button = target.closest("button");
  if (!button) return;
  const { shown, group } = button.dataset;
  if (shown) show(shown);
  else {
    state.shown = "own";
    if (!state.hidden.delete(group)) state.hidden.add(group);
  }
  drawAll();
}
