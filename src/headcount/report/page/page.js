// Runs and downloads; then everything is shown, and listens.

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
  $("view").value = state.view ?? usualView();
  if (state.shown !== "own") show(state.shown);
  drawAll();
}

for (const part of all("[data-many]")) part.hidden = data[part.dataset.many].length < 2;
for (const select of all("[data-choose]")) select.addEventListener("change", () => {
  const at = Number(select.value);
  choose(select.dataset.choose === "group" ? data.comparisons.findIndex((of) => of.group === at) : at);
});
for (const id of ["few", "each"]) $(id).addEventListener("change", drawCurves);
$("view").addEventListener("change", ({ target }) => {
  state.view = target.value;
  drawCurves();
});
for (const legend of all(".legend")) legend.addEventListener("click", pressLegend);
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
for (const type of ["beforeprint", "afterprint"]) addEventListener(type, () => {
  root.toggleAttribute("data-printing", type === "beforeprint");  // figures too are light on paper
  drawAll();
});
$("theme").setAttribute("aria-pressed", isDark());
choose(0);
