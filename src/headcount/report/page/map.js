// The map of layers and heads.

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
