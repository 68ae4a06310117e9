// The page's figures, map and downloads, all from the JSON in #payload.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("payload").textContent);
  const $ = (id) => document.getElementById(id);
  const all = (selector) => document.querySelectorAll(selector);
  const root = document.documentElement;
  const state = { comparison: 0 };
  const comparison = () => data.comparisons[state.comparison];
  const runsHere = () => data.runs.filter((run) => run.group === comparison().group);
  const methodsAmong = (runs) => data.methods.filter((name) => runs.some((run) => run.method === name));
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

  // ---- figures

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
      if (means.length) traces.push({
        ...group, name, mode: "lines+markers", marker, line: { color: style.color, dash: style.dash, width: 2 },
        x: means.map(([k]) => k), y: means.map(([, value]) => value),
        error_y: { type: "data", array: means.map(([, , sd]) => sd ?? 0), thickness: 1.2, width: 4, color: style.color },
        text: means.map(([k, value, sd, seeds]) =>
          `<b>${name}</b>, ${k} heads<br>${number(value)}${sd === null ? "" : ` ± ${number(sd)}`}${of.unit}, ${seeds} ${seeds === 1 ? "seed" : "seeds"}`),
        hovertemplate: "%{text}<extra></extra>",
      });
      const points = [[seeds, ""], [own, ", own count"]];
      for (const [rows, kind] of points) if (rows.length && (each || kind)) traces.push({
        ...group, name: name + kind, showlegend: kind !== "", mode: "markers",
        marker: { ...marker, size: kind ? 8 : 5, symbol: `${style.symbol}-open`, opacity: kind ? 1 : 0.75 },
        x: rows.map(([k]) => k), y: rows.map(([, value]) => value),
        text: rows.map(([k, value, seed]) => `${name}${kind}, ${k} heads, seed ${seed}<br>${number(value)}${of.unit}`),
        hovertemplate: "%{text}<extra></extra>",
      });
    }
    if (of.unpruned !== null) traces.push({
      name: `unpruned, ${of.born} heads`, mode: "lines", x: [0, few ? of.few : of.born], y: [of.unpruned, of.unpruned],
      line: { color: colour("quiet"), dash: "8px,4px", width: 1.5 },
      hovertemplate: `unpruned, ${of.born} heads<br>${number(of.unpruned)}${of.unit}<extra></extra>`,
    });
    draw("curves", traces, "kept heads", of.label, { xaxis: { rangemode: "tozero" } });
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
    const priced = runsHere().filter((run) => run.penalty !== null);
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

  // ---- the map of heads

  const mapped = () => runsHere().filter((run) => run.kept && data.methods.includes(run.method));
  const ofChoice = () => mapped()
    .filter((run) => run.method === $("map-method").value && String(run.seed) === $("map-seed").value)
    .sort((a, b) => a.heads - b.heads || (b.penalty ?? 0) - (a.penalty ?? 0));

  // After another method or seed the slider stays at the number of heads it was at, or near.
  function fillMap(wanted) {
    const method = $("map-method"), seed = $("map-seed"), slider = $("map-keep");
    const methods = methodsAmong(mapped());
    fill(method, methods.map((name) => [name, name]), methods.includes(method.value) ? method.value : methods[0]);
    const seeds = [...new Set(mapped().filter((run) => run.method === method.value).map((run) => String(run.seed)))];
    seeds.sort((a, b) => a - b);
    fill(seed, seeds.map((name) => [name, name]), seeds.includes(seed.value) ? seed.value : seeds[0]);
    const away = ofChoice().map((run) => Math.abs(run.heads - wanted));
    slider.max = away.length - 1;
    slider.disabled = away.length < 2;
    slider.value = away.indexOf(Math.min(...away));
    showMap();
  }

  function showMap() {
    const run = ofChoice()[$("map-keep").value], of = comparison();
    if (!run) return;
    const price = run.penalty === null ? "" : `, λ = ${run.penalty}`;
    const score = run.scores[of.split] === undefined ? "" : `, ${of.metric} ${run.scores[of.split]}`;
    $("map-count").value = run.heads;
    $("map-keep").setAttribute("aria-valuetext", `${run.heads} heads${price}`);
    $("map-says").textContent = `${run.method}, seed ${run.seed}${price}: ${run.heads} of ${run.born} heads kept${score}`;
    const known = (run.importance ?? []).filter((value) => value !== null);
    const least = Math.min(...known), most = Math.max(...known);
    $("map-least").textContent = known.length ? `importance ${signed(least)}` : "This run has no importances.";
    $("map-most").textContent = known.length ? signed(most) : "";
    document.querySelector(".ramp").hidden = !known.length;
    const kept = new Set(run.kept), tables = new Map();
    let flat = 0;
    for (const [block, heads] of data.layouts[run.layout].blocks) {
      const dot = block.lastIndexOf("."), kind = dot < 0 ? "" : block.slice(0, dot);
      if (!tables.has(kind)) tables.set(kind, panel(kind));
      const row = tables.get(kind).tBodies[0].insertRow();
      row.append(element("th", block.slice(dot + 1), { scope: "row" }));
      for (let head = 0; head < heads; head++, flat++) {
        const value = run.importance?.[flat] ?? null, name = `${block}.${head}`;
        const says = `${name}: ${value === null ? "importance unknown" : `importance ${signed(value)}`}, ${kept.has(flat) ? "kept" : "cut"}`;
        const cell = element("td", "", { "aria-label": says, "data-head": name, tabindex: flat ? -1 : 0 });
        cell.classList.toggle("kept", kept.has(flat));
        if (value !== null) cell.style.setProperty("--share", `${most > least ? Math.round((100 * (value - least)) / (most - least)) : 100}%`);
        row.append(cell);
      }
    }
    for (const table of tables.values()) {
      const width = Math.max(...[...table.tBodies[0].rows].map((row) => row.cells.length - 1));
      for (let head = 0; head < width; head++) table.tHead.rows[0].append(element("th", head, { scope: "col" }));
    }
    $("map").replaceChildren(...tables.values());
    offer($("map-mask"), `${run.name}-mask.json`, mask(run));
  }

  function panel(kind) {
    const table = element("table");
    table.createCaption().textContent = kind;
    table.createTHead().insertRow().append(element("td"));
    table.createTBody();
    return table;
  }

  function showTip(event) {
    const cell = event.target.closest("td[data-head]"), tip = $("tip");
    tip.hidden = !cell || event.type === "focusout" || event.type === "pointerleave";
    if (tip.hidden) return;
    tip.textContent = cell.getAttribute("aria-label");
    const place = cell.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(place.left, innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${place.top > tip.offsetHeight + 8 ? place.top - tip.offsetHeight - 6 : place.bottom + 6}px`;
  }

  function stepMap(event) {
    const cell = event.target.closest("td[data-head]");
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    if (!cell || !(down || right)) return;
    event.preventDefault();
    const rows = [...all("#map tbody tr")];
    const next = rows[rows.indexOf(cell.parentElement) + down]?.cells[cell.cellIndex + right];
    if (!next?.dataset.head) return;
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  // ---- runs and downloads

  function mask(run) {
    const { blocks, ...head } = data.layouts[run.layout];
    let start = 0;
    const parts = blocks.map(([name, heads]) => {
      const kept = run.kept.filter((flat) => flat >= start && flat < start + heads).map((flat) => flat - start);
      start += heads;
      return { name, heads, kept };
    });
    return { ...head, kept: run.kept.length, of: start, blocks: parts };
  }

  function offer(link, name, content) {
    if (link.href.startsWith("blob:")) URL.revokeObjectURL(link.href);
    const text = typeof content === "string" ? content : `${JSON.stringify(content, null, 2)}\n`;
    link.href = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
    link.download = name;
  }

  function openRun({ target }) {
    if (!target.open || target.querySelector(".inside")) return;
    const run = data.runs[target.dataset.run];
    const inside = target.appendChild(element("div", "", { class: "inside scroll" }));
    const rows = (columns, lines) => {
      const table = inside.appendChild(element("table"));
      table.createTHead().insertRow().append(...columns.map((name) => element("th", name, { scope: "col" })));
      const body = table.createTBody();
      for (const [name, ...cells] of lines)
        body.insertRow().append(element("th", name, { scope: "row" }), ...cells.map((cell) => element("td", cell)));
    };
    rows(["measured", "unpruned", "pruned", "ratio"], run.measured);
    rows(["setting", "value"], [...Object.entries(run.settings), ...Object.entries(data.settings)]);
    if (run.kept) offer(inside.appendChild(element("a", "Download its mask")), `${run.name}-mask.json`, mask(run));
  }

  function filterRuns() {
    const words = $("filter").value.toLowerCase().split(/\s+/);
    let found = 0;
    for (const run of all("#run-list details")) {
      const text = run.querySelector("summary").textContent.toLowerCase();
      run.hidden = !words.every((word) => text.includes(word));
      found += !run.hidden;
    }
    $("filtered").textContent = `${found} of ${data.runs.length} runs`;
  }

  // ---- all of it

  function choose(place) {
    state.comparison = place;
    for (const select of all("[data-choose=comparison]")) fill(select, data.comparisons.map((of, i) => [i, of.title]), place);
    for (const select of all("[data-choose=group]")) fill(select, data.groups.map((name, i) => [i, name]), comparison().group);
    if ($("map")) fillMap(Number($("map-count").value || comparison().few / 2));
    drawAll();
  }

  for (const part of all("[data-many]")) part.hidden = data[part.dataset.many].length < 2;
  for (const select of all("[data-choose]")) select.addEventListener("change", () => {
    const at = Number(select.value);
    choose(select.dataset.choose === "group" ? data.comparisons.findIndex((of) => of.group === at) : at);
  });
  for (const id of ["few", "each"]) $(id).addEventListener("change", drawCurves);
  if ($("map")) {
    for (const id of ["map-method", "map-seed"]) $(id).addEventListener("change", () => fillMap(Number($("map-count").value)));
    $("map-keep").addEventListener("input", showMap);
    for (const type of ["pointerover", "pointerleave", "focusin", "focusout"]) $("map").addEventListener(type, showTip);
    $("map").addEventListener("keydown", stepMap);
    addEventListener("scroll", () => ($("tip").hidden = true), { passive: true });
  }
  for (const run of all("#run-list details")) run.addEventListener("toggle", openRun);
  $("filter")?.addEventListener("input", filterRuns);
  for (const link of all("a[data-file]")) offer(link, link.dataset.file, data.files[link.dataset.file]);
  offer($("masks"), "masks.json", Object.fromEntries(data.runs.filter((run) => run.kept).map((run) => [run.name, mask(run)])));
  if (remembered()) root.dataset.theme = remembered();
  $("theme").addEventListener("click", () => {
    root.dataset.theme = remembered(isDark() ? "light" : "dark") ?? (isDark() ? "light" : "dark");
    showTheme();
  });
  system.addEventListener("change", showTheme);
  $("theme").setAttribute("aria-pressed", isDark());
  choose(0);
})();
