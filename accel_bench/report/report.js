"use strict";
(() => {
  const root = document.documentElement;
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const plots = [...document.querySelectorAll(".plot")];
  const boxes = [...document.querySelectorAll("input[data-source]")];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  const coarse = matchMedia("(pointer: coarse)");
  const off = new Set();
  const drawn = new Set();
  let printing = paper.matches;

  // --- tables ---

  // What cannot be compared comes last, whichever way the column is sorted.
  function compare(a, b, direction) {
    if (a.unit !== b.unit) return a.unit < b.unit ? -1 : 1;
    if (a.known !== b.known) return a.known ? -1 : 1;
    if (typeof a.key === "number" && typeof b.key === "number") return direction * (a.key - b.key);
    return direction * String(a.key).localeCompare(String(b.key), "en", { numeric: true });
  }

  function keyOf(cell, numeric) {
    if (numeric) {
      const known = cell.dataset.v !== undefined;
      return { known, unit: cell.dataset.u || "", key: known ? Number(cell.dataset.v) : 0 };
    }
    const text = cell.textContent.trim();
    return { known: text !== "", unit: "", key: text };
  }

  function sort(table, header) {
    const body = table.tBodies[0];
    if (!table.first) table.first = [...body.rows];
    const was = header.getAttribute("aria-sort");
    const now = { ascending: "descending", descending: "" }[was] ?? "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    if (now) header.setAttribute("aria-sort", now);
    let rows = table.first;
    if (now) {
      const column = header.cellIndex;
      const numeric = rows.some((row) => row.cells[column].dataset.v !== undefined);
      const direction = now === "ascending" ? 1 : -1;
      rows = rows
        .map((row) => ({ row, ...keyOf(row.cells[column], numeric) }))
        .sort((a, b) => compare(a, b, direction))
        .map((item) => item.row);
    }
    body.append(...rows);
    const name = header.textContent.trim();
    say(now ? `Sorted by ${name}, ${now}.` : "In the first order again.");
  }

  function say(text) {
    document.getElementById("said").textContent = text;
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    table.tHead.addEventListener("click", (event) => {
      const header = event.target.closest("button")?.closest("th");
      if (header) sort(table, header);
    });
  }

  // --- links ---

  // In a frame that a notebook makes of the page's text (srcdoc) a link to a part of the page is one
  // to a part of the notebook.
  if (location.protocol === "about:") {
    document.addEventListener("click", (event) => {
      const target = event.target.closest('a[href^="#"]')?.getAttribute("href").slice(1);
      if (!target) return;
      event.preventDefault();
      const part = document.getElementById(target);
      part.scrollIntoView();
      part.focus({ preventScroll: true });
    });
  }

  // --- plots ---

  function theme() {
    return dark.matches && !printing ? themes.dark : themes.light;
  }

  function painted(trace, look) {
    const color = look.colors[trace.meta.c];
    const copy = { ...trace, visible: !trace.meta.s.every((n) => off.has(n)) };
    if (trace.type === "bar") {
      const shape = trace.marker.pattern.shape;
      const pattern = { shape, fgcolor: color, bgcolor: look.paper, size: 7, solidity: 0.45 };
      copy.marker = { color, line: { color, width: 1.5 }, pattern };
      return copy;
    }
    if (trace.marker) copy.marker = { ...trace.marker, color };
    if (trace.marker) copy.marker.line = { ...trace.marker.line, color };
    if (trace.line) copy.line = { ...trace.line, color };
    if (trace.error_y) copy.error_y = { ...trace.error_y, color };
    copy.textfont = { color, size: 12 };
    return copy;
  }

  function axis(given, look) {
    return {
      ...given,
      title: { ...given.title, standoff: 8 },
      gridcolor: look.grid, linecolor: look.ink, zerolinecolor: look.grid,
      tickcolor: look.ink, showline: true, automargin: true,
    };
  }

  // Names of rows in lines that leave room beside them; returns the height of all rows.
  function nameRows(yaxis, data, narrow) {
    const there = new Set(data.filter((t) => t.visible).flatMap((t) => t.y));
    const names = yaxis.categoryarray.filter((name) => there.has(name));
    const texts = names.map((name) => wrapped(name, narrow ? 15 : 40));
    Object.assign(yaxis, { categoryarray: names, tickmode: "array", tickvals: names });
    yaxis.ticktext = texts.map((lines) => lines.join("<br>"));
    yaxis.tickfont = { size: narrow ? 11 : 12 };
    if (narrow) yaxis.title = { text: "" };
    return names.length * Math.max(30, 14 + 15 * Math.max(1, ...texts.map((t) => t.length)));
  }

  function wrapped(text, width) {
    const lines = [];
    for (const word of text.split(" ")) {
      const last = lines.length - 1;
      if (last >= 0 && lines[last].length + word.length < width) lines[last] += ` ${word}`;
      else lines.push(word);
    }
    return lines;
  }

  function layoutOf(given, data, look, width) {
    const names = data.filter((t) => t.showlegend && t.visible).map((t) => t.name.length);
    const lines = Math.ceil(names.reduce((sum, n) => sum + 7.2 * n + 55, 0) / Math.max(width, 1));
    const narrow = width < 600;
    const yaxis = axis(given.yaxis, look);
    let height = 400;
    if (yaxis.categoryarray) height = 90 + nameRows(yaxis, data, narrow);
    height += 22 * Math.min(lines, 14);
    const ends = data.filter((t) => t.visible).flatMap((t) => (t.text || []).slice(-1));
    const room = Math.max(0, ...ends.map((text) => text.length));
    return {
      ...given, height, width: printing ? width : undefined, autosize: !printing,
      xaxis: axis(given.xaxis, look), yaxis,
      shapes: (given.shapes || []).map((s) => ({ ...s, line: { ...s.line, color: look.ink } })),
      paper_bgcolor: look.paper, plot_bgcolor: look.paper,
      font: { color: look.ink, family: "system-ui, sans-serif", size: 13 },
      hoverlabel: { bgcolor: look.paper, bordercolor: look.ink, align: "left",
                    font: { color: look.ink } },
      hovermode: "closest", dragmode: coarse.matches ? false : "zoom",
      margin: { l: narrow ? 50 : 70, r: Math.min(120, 24 + 7 * room), t: 34, b: 50 },
      legend: { orientation: "h", y: 0, yref: "container", yanchor: "bottom", x: 0,
                font: { size: 12 }, itemclick: false, itemdoubleclick: false },
    };
  }

  function draw(box) {
    if (!window.Plotly) return;
    const look = theme();
    const given = JSON.parse(document.getElementById(`${box.id}-data`).textContent);
    const data = given.data.map((trace) => painted(trace, look));
    const width = printing ? 680 : box.clientWidth;
    const config = {
      responsive: true, displaylogo: false,
      // Named one by one: by default plotly offers to upload the plot as well.
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
    };
    Plotly.react(box, data, layoutOf(given.layout, data, look, width), config);
    box.style.minHeight = 0;
    drawn.add(box);
  }

  function drawAgain() {
    for (const box of printing ? plots : drawn) draw(box);
  }

  function print(on) {
    if (printing === on) return;
    printing = on;
    drawAgain();
  }

  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "300px" });

  async function load() {
    if (!plots.length) return;
    const packed = document.getElementById("plotly");
    const bytes = Uint8Array.from(atob(packed.textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    packed.remove();
    for (const box of plots) near.observe(box);
    if (printing) drawAgain();
  }

  // --- sources, themes, paper ---

  for (const box of boxes) {
    // A browser may remember a box from the last visit.
    box.checked = true;
    box.addEventListener("change", () => {
      const number = Number(box.dataset.source);
      root.classList.toggle(`off${number}`, !box.checked);
      if (box.checked) off.delete(number);
      else off.add(number);
      drawAgain();
      say(`${box.parentElement.textContent.trim()} ${box.checked ? "shown" : "hidden"}.`);
    });
  }
  document.getElementById("sources-shown").hidden = false;
  dark.addEventListener("change", drawAgain);
  paper.addEventListener("change", (event) => print(event.matches));
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  let timer = 0;
  let width = innerWidth;
  addEventListener("resize", () => {
    // The address bar of a phone comes and goes and changes the height alone.
    if (printing || width === innerWidth) return;
    width = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(drawAgain, 150);
  });
  load().catch((error) => {
    for (const box of plots) box.textContent = `The plots cannot be drawn here: ${error}`;
  });
})();
