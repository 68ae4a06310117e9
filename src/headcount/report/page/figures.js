// The figures that answer to the pointer.

// Plotly reads some HTML in its texts; names are to be shown as they are.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// On dark paper, dark colours are lifted.
function look(name, own = data.looks[name]) {
  if (own.color === "#000000") return { ...own, color: colour("ink") };
  if (!isDark() || root.hasAttribute("data-printing")) return own;
  const parts = [1, 3, 5].map((at) => Math.round(0.7 * parseInt(own.color.slice(at, at + 2), 16) + 0.3 * 255));
  return { ...own, color: `rgb(${parts.join(", ")})` };
}

// `id` names the figure and its legend; a figure without one shares that of another.
function draw(id, traces, x, y, more = {}) {
  if (!$(id)) return;
  if ($(`${id}-legend`)) fillLegend($(`${id}-legend`), traces);
  const [ink, line, paper] = ["ink", "line", "paper"].map(colour);
  const axis = (title) => ({ title: { text: title, standoff: 10 }, gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true });
  const layout = {
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 50, r: 10, t: 10, b: 45 },
    xaxis: { ...axis(x), ...more.xaxis }, yaxis: { ...axis(y), ...more.yaxis },
    hoverlabel: { bgcolor: paper, font: { color: ink }, align: "left" },
    hovermode: "closest", showlegend: false,
  };
  Plotly.react(id, traces.filter((trace) => !state.hidden.has(trace.legendgroup)), layout, {
    responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]],
    displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
  });
}

const number = (value) => value.toFixed(2);
const unprunedLine = (of) => ({
  meta: `unpruned, ${of.born} heads`, name: `unpruned, ${of.born} heads`, legendgroup: "unpruned", mode: "lines",
  line: { color: colour("quiet"), dash: "8px,4px", width: 1.5 },
  hovertemplate: `unpruned, ${of.born} heads<br>${number(of.unpruned)}${of.unit}<extra></extra>`,
});

// Means, seeds and own counts of a method, with no more heads than shall be shown.
function results(method) {
  const of = comparison(), limit = $("few").checked ? of.few : Infinity;
  return [of.means, of.seeds, of.own].map((found) => (found[method] ?? []).filter(([k]) => k <= limit));
}

function says(method, [k, value, sd], seeds) {
  const each = seeds.filter(([heads]) => heads === k).map(([, of, seed]) => `<br>seed ${seed}: ${number(of)}`);
  return `<b>${plain(method)}</b>, ${k} heads<br>${number(value)}${sd === null ? "" : ` ± ${number(sd)}`}${comparison().unit}${each.join("")}`;
}

const ownSays = (method, [k, value, seed]) => `${plain(method)}, ${k} heads, seed ${seed}<br>${number(value)}${comparison().unit}`;

function drawCurves() {
  const lines = $("view").value === "lines";
  // Methods side by side need a line of text each.
  $("curves").style.height = lines ? "" : `${Math.max(16, 6 + 1.6 * comparison().ranking.length)}rem`;
  (lines ? drawLines : drawMethods)();
}

// Lines need two numbers of heads.
function usualView() {
  const of = comparison(), counted = Object.values(of.means);
  return counted.length > MANY && 2 * counted.filter((means) => means.length < 2).length > counted.length ? "methods" : "lines";
}

function drawLines() {
  const of = comparison(), traces = [];
  for (const method of data.methods) {
    const name = plain(method), style = look(method), group = { legendgroup: method };
    const marker = { color: style.color, symbol: style.symbol, size: 8 };
    const [means, seeds, own] = results(method);
    const open = { ...marker, symbol: `${style.symbol}-open` };
    if (means.length) traces.push({
      ...group, name, mode: "lines+markers", marker, line: { color: style.color, dash: style.dash, width: 2 },
      x: means.map(([k]) => k), y: means.map(([, value]) => value),
      error_y: { type: "data", array: means.map(([, , sd]) => sd ?? 0), thickness: 1.2, width: 4, color: style.color },
      text: means.map((mean) => says(method, mean, seeds)), hovertemplate: "%{text}<extra></extra>",
    });
    if ($("each").checked && seeds.length) traces.push({
      ...group, name: `${name}, each seed`, showlegend: false, mode: "markers", marker: { ...open, size: 5, opacity: 0.75 },
      x: seeds.map(([k]) => k), y: seeds.map(([, value]) => value),
      hoverinfo: "skip",  // the mean tells of its seeds, and would be hard to hit beside them
    });
    if (own.length) traces.push({
      ...group, name: `${name}, own count`, mode: "markers", marker: open,
      x: own.map(([k]) => k), y: own.map(([, value]) => value),
      text: own.map((one) => ownSays(method, one)), hovertemplate: "%{text}<extra></extra>",
    });
  }
  if (of.unpruned !== null) traces.push({ ...unprunedLine(of), x: [0, $("few").checked ? of.few : of.born], y: [of.unpruned, of.unpruned] });
  draw("curves", traces, "kept heads", of.label, { xaxis: { rangemode: "tozero" }, yaxis: of.wide ? { type: "log", dtick: "D2" } : {} });
}

// A line of text per method, the best on top, and a symbol per number of heads.
function drawMethods() {
  const of = comparison(), traces = [], methods = [...of.ranking].reverse();
  for (const k of Object.keys(of.counts).map(Number).sort((a, b) => b - a)) {
    const style = look("", of.counts[k]), group = { legendgroup: `${k} heads` };
    const marker = { color: style.color, symbol: style.symbol, size: 9 };
    const found = methods.flatMap((method) => {
      const [means, seeds] = results(method), mean = means.find(([heads]) => heads === k);
      return mean ? [{ method, mean, seeds: seeds.filter(([heads]) => heads === k) }] : [];
    });
    if (!found.length) continue;
    traces.push({
      ...group, name: `${k} heads`, mode: "markers", marker,
      x: found.map(({ mean }) => mean[1]), y: found.map(({ method }) => plain(method)),
      error_x: { type: "data", array: found.map(({ mean }) => mean[2] ?? 0), thickness: 1.2, width: 4, color: style.color },
      text: found.map(({ method, mean, seeds }) => says(method, mean, seeds)), hovertemplate: "%{text}<extra></extra>",
    });
    const each = found.flatMap(({ method, seeds }) => seeds.map(([, value]) => [plain(method), value]));
    if ($("each").checked) traces.push({
      ...group, showlegend: false, mode: "markers", marker: { ...marker, symbol: `${style.symbol}-open`, size: 5, opacity: 0.75 },
      x: each.map(([, value]) => value), y: each.map(([method]) => method), hoverinfo: "skip",
    });
  }
  const own = methods.flatMap((method) => results(method)[2].map((one) => [method, one]));
  if (own.length) traces.push({
    legendgroup: "own count", name: "own count", mode: "markers", marker: { color: colour("quiet"), symbol: "circle-open", size: 8 },
    x: own.map(([, [, value]]) => value), y: own.map(([method]) => plain(method)),
    text: own.map(([method, one]) => ownSays(method, one)), hovertemplate: "%{text}<extra></extra>",
  });
  const names = methods.map(plain);
  if (of.unpruned !== null) traces.push({ ...unprunedLine(of), x: names.map(() => of.unpruned), y: names });
  draw("curves", traces, of.label, "", {
    xaxis: of.wide ? { type: "log", dtick: "D2" } : {}, yaxis: { type: "category", categoryorder: "array", categoryarray: names, tickmode: "linear" },
  });
}

function drawDynamics() {
  const traces = [];
  for (const { method, group, course } of data.courses) {
    if (group !== comparison().group) continue;
    const line = { shape: "hv", color: look(method).color };
    const [x, y, text] = [[], [], []];
    for (const run of runsHere()) {
      if (run.method !== method || !run.course) continue;
      x.push(...run.course[0], null);
      y.push(...run.course[1], null);
      text.push(...run.course[0].map(() => plain(run.name)), null);
    }
    const says = "<br>step %{x}: %{y:.0f} % of the final heads<extra></extra>";
    const shared = { legendgroup: method, mode: "lines" };
    traces.push({ ...shared, showlegend: false, x, y, text, line: { ...line, width: 1 }, opacity: 0.35, hovertemplate: `%{text}${says}` });
    traces.push({ ...shared, name: plain(method), x: course[0], y: course[1], line: { ...line, width: 3, dash: look(method).dash }, hovertemplate: `<b>${plain(method)}</b>, mean${says}` });
  }
  draw("dynamics", traces, "training step", "final heads selected, %", { yaxis: { range: [0, 104] } });
}

// A point per run and the mean of each method, against the number of heads or λ.
function scattered(runs, x, y, says, group = (method) => method) {
  return methodsAmong(runs).flatMap((method) => {
    const style = look(method), of = runs.filter((run) => run.method === method);
    const places = [...new Set(of.map(x))].sort((a, b) => a - b);
    const shared = { legendgroup: group(method), meta: method, marker: { color: style.color, symbol: style.symbol, size: 6 } };
    return [
      { ...shared, name: plain(method), mode: "lines", line: { color: style.color, dash: style.dash, width: 1.5 }, hoverinfo: "skip",
        x: places, y: places.map((place) => mean(of.filter((run) => x(run) === place).map(y))) },
      { ...shared, showlegend: false, mode: "markers", x: of.map(x), y: of.map(y),
        text: of.map((run) => `${plain(run.name)}<br>${says(run)}`), hovertemplate: "%{text}<extra></extra>" },
    ];
  });
}

function drawGains() {
  const pruned = runsHere().filter((run) => data.methods.includes(run.method));
  const timed = pruned.filter((run) => run.speed);
  const heads = (run) => run.heads;
  const count = (value) => Math.round(value).toLocaleString("en");
  const megabytes = (value) => (value / 1e6).toFixed(1);
  if (!timed.length && $("speed")) $("speed").hidden = true;
  draw("speed", scattered(timed, heads, (run) => 100 * (run.speed[1] / run.speed[0] - 1),
    (run) => `${run.heads} heads: ${run.speed[1]} examples per second,<br>unpruned ${run.speed[0]}`), "kept heads", "speed-up, %");
  draw("size", scattered(pruned, heads, (run) => 100 * (1 - run.parameters[1] / run.parameters[0]),
    (run) => `${run.heads} heads: ${count(run.parameters[1])} parameters, ${megabytes(run.bytes[1])} MB,<br>unpruned ${count(run.parameters[0])}, ${megabytes(run.bytes[0])} MB`),
    "kept heads", "fewer parameters, %", { yaxis: { rangemode: "tozero" } });
}

function drawPenalty() {
  // Variants with other prices are points of one line.
  const priced = runsHere().filter((run) => run.penalty !== null).map((run) => ({ ...run, method: run.pruner }));
  const type = priced.every((run) => run.penalty > 0) ? "log" : "linear";
  draw("penalty", scattered(priced, (run) => run.penalty, (run) => run.heads, (run) => `λ = ${run.penalty}: ${run.heads} heads`, (method) => `${method} by price`),
    "price λ per head", "kept heads", { xaxis: { type, dtick: type === "log" ? 1 : undefined }, yaxis: { rangemode: "tozero" } });
}

function drawAll() {
  drawCurves();
  drawDynamics();
  drawGains();
  drawPenalty();
}
