// The figures that answer to the pointer.

// Plotly reads some HTML in its texts; names are to be shown as they are.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function look(method) {
  const own = data.looks[method];
  return { ...own, color: own.color === "#000000" ? colour("ink") : own.color };
}

function draw(id, traces, x, y, more = {}) {
  if (!$(id)) return;
  const [ink, line, paper] = ["ink", "line", "paper"].map(colour);
  const axis = (title) => ({ title: { text: title, standoff: 10 }, gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true });
  const layout = {
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 50, r: 10, t: 10, b: 45 },
    xaxis: { ...axis(x), ...more.xaxis }, yaxis: { ...axis(y), ...more.yaxis },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    hoverlabel: { bgcolor: paper, font: { color: ink }, align: "left" },
    hovermode: "closest", showlegend: true,
  };
  Plotly.react(id, traces, layout, {
    responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]],
    displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
  });
}

function drawCurves() {
  const of = comparison();
  const few = $("few").checked, each = $("each").checked;
  const limit = few ? of.few : Infinity;
  const number = (value) => value.toFixed(2);
  const traces = [];
  for (const method of data.methods) {
    const name = plain(method), style = look(method), group = { legendgroup: method };
    const marker = { color: style.color, symbol: style.symbol, size: 8 };
    const means = (of.means[method] ?? []).filter(([k]) => k <= limit);
    const seeds = (of.seeds[method] ?? []).filter(([k]) => k <= limit);
    const own = (of.own[method] ?? []).filter(([k]) => k <= limit);
    const open = { ...marker, symbol: `${style.symbol}-open` };
    if (means.length) traces.push({
      ...group, name, mode: "lines+markers", marker, line: { color: style.color, dash: style.dash, width: 2 },
      x: means.map(([k]) => k), y: means.map(([, value]) => value),
      error_y: { type: "data", array: means.map(([, , sd]) => sd ?? 0), thickness: 1.2, width: 4, color: style.color },
      text: means.map(([k, value, sd]) => {
        const each = seeds.filter(([heads]) => heads === k).map(([, of, seed]) => `<br>seed ${seed}: ${number(of)}`);
        return `<b>${name}</b>, ${k} heads<br>${number(value)}${sd === null ? "" : ` ± ${number(sd)}`}${of.unit}${each.join("")}`;
      }),
      hovertemplate: "%{text}<extra></extra>",
    });
    if (each && seeds.length) traces.push({
      ...group, name: `${name}, each seed`, showlegend: false, mode: "markers", marker: { ...open, size: 5, opacity: 0.75 },
      x: seeds.map(([k]) => k), y: seeds.map(([, value]) => value),
      hoverinfo: "skip",  // the mean tells of its seeds, and would be hard to hit beside them
    });
    if (own.length) traces.push({
      ...group, name: `${name}, own count`, mode: "markers", marker: open,
      x: own.map(([k]) => k), y: own.map(([, value]) => value),
      text: own.map(([k, value, seed]) => `${name}, ${k} heads, seed ${seed}<br>${number(value)}${of.unit}`),
      hovertemplate: "%{text}<extra></extra>",
    });
  }
  if (of.unpruned !== null) traces.push({
    name: `unpruned, ${of.born} heads`, mode: "lines", x: [0, few ? of.few : of.born], y: [of.unpruned, of.unpruned],
    line: { color: colour("quiet"), dash: "8px,4px", width: 1.5 },
    hovertemplate: `unpruned, ${of.born} heads<br>${number(of.unpruned)}${of.unit}<extra></extra>`,
  });
  const yaxis = of.wide ? { type: "log", dtick: "D2" } : {};
  draw("curves", traces, "kept heads", of.label, { xaxis: { rangemode: "tozero" }, yaxis });
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
function scattered(runs, x, y, says) {
  return methodsAmong(runs).flatMap((method) => {
    const style = look(method), of = runs.filter((run) => run.method === method);
    const places = [...new Set(of.map(x))].sort((a, b) => a - b);
    const shared = { legendgroup: method, marker: { color: style.color, symbol: style.symbol, size: 6 } };
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
  draw("penalty", scattered(priced, (run) => run.penalty, (run) => run.heads, (run) => `λ = ${run.penalty}: ${run.heads} heads`),
    "price λ per head", "kept heads", { xaxis: { type, dtick: type === "log" ? 1 : undefined }, yaxis: { rangemode: "tozero" } });
}

function drawAll() {
  drawCurves();
  drawDynamics();
  drawGains();
  drawPenalty();
}
