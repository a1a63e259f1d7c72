// The map of page tables: bands by level, zoomed by the wheel, moved by dragging; a click draws a walk.
const BAND = 34, GAP = 8, LEFT = 44, CELL_COLUMNS = 64;
const hex = (number) => "0x" + BigInt(Math.round(number)).toString(16);

function element(parent, tag, className, text) {
  const made = parent.appendChild(document.createElement(tag));
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function render({ model, el }) {
  const root = element(el, "div", "ptx");
  const tools = element(root, "div", "ptx-tools");
  const dimension = element(tools, "select");
  dimension.ariaLabel = "Table";
  const buttons = [["Zoom in", 0.5], ["Zoom out", 2], ["Whole", Infinity], ["One table", 0]];
  for (const [name, factor] of buttons) element(tools, "button", "", name).onclick = () => zoom(factor);
  const address = element(tools, "input");
  address.placeholder = "address, hexadecimal"; address.ariaLabel = "Address to walk";
  const where = element(root, "div", "ptx-where");
  const canvas = element(root, "canvas");
  canvas.setAttribute("role", "img");
  const legend = element(root, "div", "ptx-legend"), walk = element(root, "div", "ptx-walk");
  const shown = () => model.get("shown");

  function ask(change) {
    const { dimension, low, high } = shown();
    model.set("asked", { ...model.get("asked"), dimension, low, high, ...change });
    model.save_changes();
  }
  function zoom(factor, at = 0.5) {
    const { low, high, slots } = shown(), middle = low + at * (high - low);
    const wide = factor === Infinity ? slots : Math.max((high - low) * factor, 1);
    ask({ low: middle - at * wide, high: middle + (1 - at) * wide });
  }
  const atPointer = (event) => {
    const box = canvas.getBoundingClientRect();
    return (event.clientX - box.left - LEFT) / (box.width - LEFT);
  };
  canvas.onwheel = (event) => {
    const { low, high, slots } = shown(), out = event.deltaY > 0;
    if (high - low === (out ? slots : 1)) return;  // nothing left to zoom: the page scrolls
    event.preventDefault();
    zoom(out ? 1.5 : 1 / 1.5, atPointer(event));
  };
  let from = null;
  canvas.onpointerdown = (event) => { from = atPointer(event); };
  canvas.onpointerup = (event) => {
    const { low, high } = shown(), to = atPointer(event), moved = (from - to) * (high - low);
    if (Math.abs(from - to) > 0.01) return ask({ low: low + moved, high: high + moved });
    const { from: first, to: last, cells } = shown();
    if (cells) {
      const box = canvas.getBoundingClientRect(), row = Math.floor((event.clientY - box.top - cells.top) / cells.size);
      const entry = row * CELL_COLUMNS + Math.floor(to * CELL_COLUMNS);
      if (row >= 0 && entry < 512) return ask({ address: hex(cells.base + entry * cells.step) });
    }
    if (to >= 0) ask({ low: low + to * (high - low) - 0.5, high: low + to * (high - low) + 0.5 });
  };
  dimension.onchange = () => ask({ dimension: dimension.value, low: 0, high: 1e18 });
  address.onchange = () => ask({ address: address.value });
  address.dataset.lmSuppressShortcuts = "true";
  address.onkeydown = (event) => {  // JupyterLab takes Enter for itself: the field would send no change
    event.stopPropagation();
    if (event.key === "Enter") ask({ address: address.value });
  };

  function options(select, names, chosen) {
    select.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
  }

  function draw() {
    const now = shown(), wide = Math.max(root.clientWidth || 700, 320), ratio = window.devicePixelRatio || 1;
    const cell = (wide - LEFT) / CELL_COLUMNS, bandsHigh = now.bands.length * (BAND + GAP);
    const high = bandsHigh + (now.cells ? 20 + 8 * cell : 0);
    canvas.width = wide * ratio; canvas.height = high * ratio; canvas.style.height = `${high}px`;
    const pen = canvas.getContext("2d"), ink = getComputedStyle(root).color;
    pen.scale(ratio, ratio); pen.font = "12px system-ui"; pen.textBaseline = "middle";
    now.bands.forEach((band, row) => {
      const y = row * (BAND + GAP), step = (wide - LEFT) / band.node.length;
      pen.fillStyle = ink; pen.fillText(`L${band.level}`, 4, y + BAND / 2);
      band.node.forEach((node, column) => {
        const x = Math.round(LEFT + column * step), next = Math.round(LEFT + (column + 1) * step);
        if (node !== -2) { pen.fillStyle = now.looks[node][0]; pen.fillRect(x, y, next - x, BAND); }
      });
    });
    if (now.cells) {
      now.cells.top = bandsHigh + 20; now.cells.size = cell;
      pen.fillStyle = ink; pen.fillText(`the 512 entries of the table at ${hex(now.cells.base)}, by the node of what they point to`, LEFT, bandsHigh + 8);
      now.cells.node.forEach((node, k) => {
        const x = LEFT + (k % CELL_COLUMNS) * cell, y = now.cells.top + Math.floor(k / CELL_COLUMNS) * cell;
        pen.fillStyle = node === -2 ? "#8882" : (now.looks[node] ?? now.looks["-1"])[0];
        pen.fillRect(x, y, cell - 1, cell - 1);
        if (k === now.entry) { pen.strokeStyle = ink; pen.lineWidth = 3; pen.strokeRect(x, y, cell - 1, cell - 1); }
      });
    }
    drawWalk(pen, now, wide);
    options(dimension, now.dimensions, now.dimension);
    where.textContent = `${now.name}: ${now.dimension}, ${hex(now.from)} to ${hex(now.to)}; ${Math.round(now.high - now.low).toLocaleString()} of ${now.slots.toLocaleString()} lowest tables`;
    canvas.ariaLabel = where.textContent;
    const nodes = new Set([...now.bands.flatMap((band) => band.node), ...(now.cells?.node ?? [])]);
    const names = Object.entries(now.looks).filter(([node]) => nodes.has(Number(node))).map(([, look]) => look);
    legend.replaceChildren();
    for (const [fill, name] of names) { const one = element(legend, "span"); element(one, "i").style.background = fill; one.append(name); }
    const steps = now.steps.map((one) => `${one.where}[${one.slot}] ${one.node < 0 ? "?" : "node " + one.node} →${one.where.startsWith("g") ? "\n" : " "}`);
    walk.textContent = steps.join("") + now.said;
    root.dataset.drawn = (Number(root.dataset.drawn) || 0) + 1;
  }

  function drawWalk(pen, now, wide) {
    const points = now.steps.filter((one) => one.place !== null).map((one) => {
      const row = now.bands.findIndex((band) => band.level === one.level);
      return [LEFT + (one.place - now.low) / (now.high - now.low) * (wide - LEFT), row * (BAND + GAP) + BAND / 2];
    });
    if (!points.length) return;
    pen.save(); pen.beginPath(); pen.rect(LEFT, 0, wide, 1e5); pen.clip();
    for (const [width, style] of [[5, "#ffffff"], [2.5, "#000000"]]) {
      pen.lineWidth = width; pen.strokeStyle = style; pen.beginPath();
      points.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y))); pen.stroke();
      for (const [x, y] of points) { pen.beginPath(); pen.arc(x, y, 4, 0, 7); pen.stroke(); pen.fillStyle = style; pen.fill(); }
    }
    pen.restore();
  }
  model.on("change:shown", draw);
  let drawn = null;  // a notebook gives the room only after this: what was drawn before has neither width nor colours
  const room = new ResizeObserver(() => { if (root.clientWidth !== drawn) { drawn = root.clientWidth; draw(); } });
  room.observe(root);
  return () => room.disconnect();
}
export default { render };
