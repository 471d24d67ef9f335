// Figures are drawn when they scroll into view, those in three dimensions after all others.
const settings = {responsive: true, displaylogo: false, showSendToCloud: false,
                  showEditInChartStudio: false, plotlyServerURL: "", scrollZoom: false,
                  modeBarButtonsToRemove: ["sendDataToCloud", "lasso2d", "select2d"]};
const dark = matchMedia("(prefers-color-scheme: dark)");

// Colours as plotly takes them, "axis.field": value.
const colourScheme = (layout, print) => {
  const [paper, ink, line] = dark.matches && !print
    ? ["#0d1117", "#e6edf3", "#30363d"] : ["#ffffff", "#1b1f24", "#e3e7eb"];
  const colours = {paper_bgcolor: paper, plot_bgcolor: paper, "font.color": ink,
                   "legend.bgcolor": paper};
  const axes = Object.keys(layout).filter(name => /^[xy]axis\d*$/.test(name));
  if (layout.scene) axes.push("scene.xaxis", "scene.yaxis", "scene.zaxis");
  for (const axis of axes) {
    colours[`${axis}.gridcolor`] = line;
    colours[`${axis}.zerolinecolor`] = line;
    if (axis.startsWith("scene")) colours[`${axis}.backgroundcolor`] = paper;
  }
  return colours;
};
const completeLayout = (layout) => {
  const whole = structuredClone(layout);
  const narrow = innerWidth < 600;
  whole.margin ??= {l: narrow ? 50 : 70, r: narrow ? 10 : 20, t: 30, b: 55};
  whole.font ??= {family: "system-ui, sans-serif", size: narrow ? 11 : 12};
  if (narrow && whole.scene) whole.scene.camera = {eye: {x: 2.1, y: 2.1, z: 1.6}};  // from further away
  whole.hovermode ??= "closest";
  whole.legend ??= {orientation: "h", y: -0.25, yanchor: "top"};
  for (const [name, value] of Object.entries(colourScheme(layout, false))) {
    const fields = name.split("."), last = fields.pop();
    let place = whole;
    for (const field of fields) place = place[field] ??= {};
    place[last] = value;
  }
  return whole;
};

let library = null;
const load = () => library ??= (async () => {
  const compressed = Uint8Array.from(atob(document.getElementById("plotly").textContent), c => c.charCodeAt(0));
  const decompressed = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.nonce = nonce;
  script.textContent = await new Response(decompressed).text();
  document.head.append(script);
  return window.Plotly;
})();
const content = (place) => JSON.parse(document.getElementById(place.dataset.figure).textContent);
const draw = async (place) => {
  if (place.dataset.drawn) return;
  place.dataset.drawn = "started";
  const figure = content(place), plotly = window.Plotly ?? await load();
  place.replaceChildren();
  await plotly.newPlot(place, figure.data, completeLayout(figure.layout), settings);
  place.dataset.drawn = "done";
};

const waiting = new Set();
let drawing = false;
const drawWaiting = async () => {
  if (drawing) return;
  drawing = true;
  while (waiting.size) {
    const [first] = waiting;
    const place = [...waiting].find(item => !("last" in item.dataset)) ?? first;
    waiting.delete(place);
    await draw(place).catch(console.error);  // a failure does not stop the others
    await new Promise(resolve => setTimeout(resolve));  // let the page handle scrolling in between
  }
  drawing = false;
};
const places = [...document.querySelectorAll("[data-figure]")];
const observer = new IntersectionObserver(entries => {
  for (const {target, isIntersecting} of entries)
    if (isIntersecting && !target.dataset.drawn) waiting.add(target); else waiting.delete(target);
  drawWaiting();
}, {rootMargin: "200px"});
places.forEach(place => observer.observe(place));
// Decompress the library when the page is idle, so that a figure or a print need not wait for it.
if (places.length) (window.requestIdleCallback ?? setTimeout)(load);

// Recolour every figure that has been started: plotly redraws two dimensions before printing goes on.
const recolour = (print) => places.filter(place => place._fullLayout)
  .forEach(place => window.Plotly.relayout(place, {...colourScheme(content(place).layout, print),
    autosize: !print, width: print ? 640 : null}));  // a sheet of paper is 700 pixels wide
dark.addEventListener("change", () => recolour(false));
const folded = [...document.querySelectorAll("details")];
addEventListener("beforeprint", () => {
  for (const item of folded) if (!item.open) { item.open = true; item.dataset.folded = ""; }
  for (const place of places) draw(place);
  recolour(true);
});
addEventListener("afterprint", () => {
  for (const item of folded) if ("folded" in item.dataset) { item.open = false; delete item.dataset.folded; }
  recolour(false);
});
