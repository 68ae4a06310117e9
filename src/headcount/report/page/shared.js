// What the other scripts share: the study, from the JSON in #payload, and colours.

const data = JSON.parse(document.getElementById("payload").textContent);
const $ = (id) => document.getElementById(id);
const all = (selector) => document.querySelectorAll(selector);
const root = document.documentElement;
const state = { comparison: 0, hidden: new Set(), view: null };
const comparison = () => data.comparisons[state.comparison];
const runsHere = () => data.runs.filter((run) => run.group === comparison().group);
const methodsAmong = (runs) => [...new Set(runs.map((run) => run.method))]
  .sort((a, b) => comparison().ranking.indexOf(a) - comparison().ranking.indexOf(b));  // the best first
const signed = (value) => String(value).replace("-", "−");
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function fill(select, texts, chosen) {
  select.replaceChildren(...texts.map(([value, text]) => element("option", text, { value })));
  select.value = chosen;
}

// ---- light and dark

const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

function remembered(value) {
  try {  // a browser may refuse to remember for files
    if (value) localStorage.setItem("headcount-theme", value);
    return localStorage.getItem("headcount-theme");
  } catch { return null; }
}

function showTheme() {
  $("theme").setAttribute("aria-pressed", isDark());
  drawAll();
}

function colour(name) {
  const probe = document.body.appendChild(element("i"));
  probe.style.color = `var(--${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
