// The page around the solver: sliders, curves, and what they mean in words.
"use strict";
(() => {
  const { ranges, start } = JSON.parse(document.getElementById("settings").textContent);
  const $ = (id) => document.getElementById(id);
  const NAMES = { risk: "log loss", refinement: "refinement", calibration: "calibration" };
  const LOSSES = { log: "log loss", brier: "Brier score" };
  const FLAT = { log: Math.log(2), brier: 0.5 }; // loss of a classifier that always says 1/2
  const WINDOW = [1e-5, 1e2]; // of lam; made wider where a minimum lies beyond
  let state, result, reading = null;

  // ---- numbers as people write them -----------------------------------------------------------------------
  const digits = (value, n) => String(Number(value.toPrecision(n)));
  const raised = (power) => `10${String(power).replace(/./g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)])}`;
  const short = (value) => { // 0.0531, 4.4 × 10⁻⁵
    if (value >= 1e-3 && value < 1e4) return digits(value, 3);
    const [head, power] = value.toExponential(1).split("e");
    return head === "1.0" ? raised(Number(power)) : `${head}\u00a0×\u00a0${raised(Number(power))}`;
  };
  const loss = (value) => (value < 5e-5 ? "0.0000" : value < 100 ? value.toFixed(4) : short(value));
  const percent = (value) => `${(100 * value).toFixed(value < 0.00095 ? 2 : 1)}\u00a0%`;

  // ---- state: clamped to the sliders, kept in the address ---------------------------------------------------
  const clamp = (value, [low, high]) => Math.min(Math.max(value, low), high);
  const fromHash = () => {
    const given = new URLSearchParams(location.hash.slice(1)), found = { ...start };
    for (const name in ranges) {
      const value = parseFloat(given.get(name));
      if (Number.isFinite(value)) found[name] = clamp(value, ranges[name]);
    }
    if (Object.hasOwn(LOSSES, given.get("loss"))) found.loss = given.get("loss");
    return found;
  };
  const toHash = () => history.replaceState(null, "", `#${new URLSearchParams(state)}`);

  // ---- sliders: logarithmic, each with a field for the exact number -----------------------------------------
  const STEPS = 200;
  const sliders = {};
  for (const box of document.querySelectorAll("[data-slider]")) {
    const { slider: name, label, symbol } = box.dataset;
    const factor = "percent" in box.dataset ? 100 : 1, unit = factor > 1 ? "%" : "";
    const [low, high] = ranges[name], span = Math.log(high / low);
    box.innerHTML = `<label for="${name}">${label} <i>${symbol}</i></label>
      <span class="number"><input type="number" id="${name}-number" aria-label="${label}${unit && ", in %"}"
        min="${digits(low * factor, 6)}" max="${digits(high * factor, 6)}" step="any" required>${unit}</span>
      <input type="range" id="${name}" min="0" max="${STEPS}" step="1">`;
    const [field, range] = box.querySelectorAll("input");
    range.addEventListener("input", () => {
      const value = low * Math.exp((span * range.value) / STEPS);
      change({ [name]: clamp(Number(value.toPrecision(3)), [low, high]) });
    });
    field.addEventListener("input", () => field.validity.valid && change({ [name]: field.valueAsNumber / factor }));
    field.addEventListener("blur", () => sliders[name]());
    box.addEventListener("change", toHash);
    sliders[name] = () => { // show the state
      range.value = (STEPS * Math.log(state[name] / low)) / span;
      range.setAttribute("aria-valuetext", digits(state[name] * factor, 3) + unit);
      if (document.activeElement !== field || !field.validity.valid) field.value = digits(state[name] * factor, 4);
    };
  }

  // ---- drawing ----------------------------------------------------------------------------------------------
  const make = (name, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const pair = ([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`;
  const polyline = (points) => `M${points.map(pair).join("L")}`;
  const smooth = (points) => { // cubic pieces, whose slope at a point is that between its neighbours
    const near = (i) => points[clamp(i, [0, points.length - 1])], aim = (i) => [0, 1].map((k) => (near(i + 1)[k] - near(i - 1)[k]) / 6);
    const piece = (end, i) => [[0, 1].map((k) => near(i)[k] + aim(i)[k]), [0, 1].map((k) => end[k] - aim(i + 1)[k]), end];
    return `M${pair(points[0])}C${points.slice(1).map((end, i) => piece(end, i).map(pair).join(" ")).join(" ")}`;
  };
  const SHAPES = { // of the marks, so that nobody needs colours to tell the curves apart
    risk: (x, y, r) => make("circle", { cx: x, cy: y, r }),
    refinement: (x, y, r) => make("rect", { x: x - 0.9 * r, y: y - 0.9 * r, width: 1.8 * r, height: 1.8 * r }),
    calibration: (x, y, r) => make("path", { d: polyline([[x, y - 1.3 * r], [x + 1.3 * r, y], [x, y + 1.3 * r], [x - 1.3 * r, y]]) + "Z" }),
  };
  const mark = (name, x, y, r = 5) => {
    const shape = SHAPES[name](x, y, r);
    shape.setAttribute("class", "dot");
    shape.setAttribute("fill", `var(--plot-${name})`);
    return shape;
  };
  const nice = (top, count) => { // a step of 1, 2 or 5 times a power of ten
    const raw = top / count, power = 10 ** Math.floor(Math.log10(raw));
    return power * [1, 2, 5, 10].find((step) => step * power >= raw);
  };

  // Where things are: strengths and losses to pixels. Risk and refinement stand above, calibration below on the
  // same scale, so that its height is the distance of the other two; what is far above the lowest loss is cut off.
  const layout = () => {
    const width = Math.max($("curves").clientWidth, 200), height = clamp(0.66 * width, [250, clamp(0.55 * innerHeight, [250, 540])]);
    const inside = Object.values(result.minimisers).filter(({ edge }) => !edge).map(({ lam }) => lam);
    const low = Math.max(1e-8, Math.min(WINDOW[0], 10 ** Math.floor(Math.log10(Math.min(...inside)) - 0.5)));
    const high = Math.min(1e4, Math.max(WINDOW[1], 10 ** Math.ceil(Math.log10(Math.max(...inside)) + 0.5)));
    const { risk } = result.minimisers.risk, { refinement } = result.minimisers.refinement;
    const top = Math.min(1.15 * risk + 2 * (risk - refinement), 1.02 * FLAT[state.loss]);
    const base = Math.max(0, refinement - 0.2 * (top - refinement)), most = 0.45 * (top - base);
    const box = { left: 46, right: width - 14, top: 6, bottom: height - 38, gap: 16 };
    const scale = (box.bottom - box.top - box.gap) / (top - base + most), middle = box.top + scale * (top - base);
    const x = (lam) => box.left + ((box.right - box.left) * Math.log(lam / low)) / Math.log(high / low);
    const upper = (value) => middle - scale * (value - base), lower = (value) => box.bottom - scale * value;
    const y = (name, value) => (name === "calibration" ? lower : upper)(value);
    const lamAt = (pixel) => low * (high / low) ** ((pixel - box.left) / (box.right - box.left));
    const panels = [ // from, to, in units of loss and in pixels
      { from: base, to: top, at: upper, top: box.top, bottom: middle },
      { from: 0, to: most, at: lower, top: middle + box.gap, bottom: box.bottom },
    ];
    return { width, height, low, high, box, panels, x, y, lamAt, step: nice(top - base, 4) };
  };

  const axes = (svg, { width, height, low, high, box, panels, x, step }) => {
    const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    for (const { from, to, at, top, bottom } of panels) {
      for (let i = Math.ceil(from / step); i * step <= to; i++) {
        svg.append(make("path", { class: "grid", d: `M${box.left},${at(i * step)}H${box.right}` }));
        svg.append(make("text", { x: box.left - 6, y: at(i * step) + 4, "text-anchor": "end" }, (i * step).toFixed(places)));
      }
      svg.append(make("path", { class: "axis", d: `M${box.left},${top}V${bottom}` }));
    }
    const decades = Math.round(Math.log10(high / low)), every = Math.ceil((decades * 44) / (box.right - box.left));
    const first = Math.round(Math.log10(low));
    for (let power = first; power <= first + decades; power++) {
      const at = x(10 ** power);
      svg.append(make("path", { class: "axis", d: `M${at},${box.bottom}v5` }));
      if (power % every === 0)
        svg.append(make("text", { x: at, y: box.bottom + 18, "text-anchor": "middle" }, raised(power)));
    }
    svg.append(make("path", { class: "axis", d: `M${box.left},${box.bottom}H${box.right}` }));
    svg.append(make("text", { class: "quiet", x: box.left, y: height - 3 }, "← weak penalty"));
    svg.append(make("text", { class: "quiet", x: (box.left + box.right) / 2, y: height - 3, "text-anchor": "middle" }, "λ"));
    svg.append(make("text", { class: "quiet", x: box.right, y: height - 3, "text-anchor": "end" }, "strong penalty →"));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
  };

  const drawCurves = () => {
    const svg = $("curves"), place = layout(), { box, panels, x, y, low, high } = place, { points, minimisers } = result;
    svg.replaceChildren();
    axes(svg, place);
    const groups = panels.map(({ top, bottom }, i) => {
      const clip = make("clipPath", { id: `panel-${i}` }), group = make("g", { "clip-path": `url(#panel-${i})` });
      clip.append(make("rect", { x: box.left, y: top - 1, width: box.right - box.left, height: bottom - top + 2 }));
      svg.append(clip, group);
      return group;
    });
    const seen = points.filter(({ lam }) => lam > low / 1.3 && lam < high * 1.3);
    const curve = (name) => seen.map((point) => [x(point.lam), clamp(y(name, point[name]), [-2000, 2000])]);
    const floor = [[x(seen.at(-1).lam), box.bottom], [x(seen[0].lam), box.bottom]];
    const band = (above, below) => make("path", { class: "band", d: `${smooth(above)}${polyline(below).replace("M", "L")}Z` });
    groups[0].append(band(curve("risk"), curve("refinement").reverse()));
    groups[1].append(band(curve("calibration"), floor));
    for (const name of ["calibration", "refinement", "risk"]) {
      const line = make("path", { class: "line", id: `curve-${name}`, stroke: `var(--plot-${name})`, d: smooth(curve(name)) });
      groups[name === "calibration" ? 1 : 0].append(line);
    }
    for (const name of ["calibration", "refinement", "risk"]) {
      const best = minimisers[name], at = clamp(x(best.lam), [box.left, box.right]), height = y(name, best[name]);
      const hair = (d) => make("path", { class: "hair", stroke: `var(--plot-${name})`, d });
      svg.append(hair(`M${at},${box.bottom}V${box.top}`));
      if (name !== "calibration") svg.append(hair(`M${box.left},${height}H${box.right}`));
      const shape = mark(name, at, height);
      shape.append(make("title", {}, `lowest ${NAMES[name]}: ${where(best)}`));
      svg.append(shape);
    }
    svg.setAttribute("aria-label", `Curves of ${LOSSES[state.loss]}, refinement and calibration against λ. ${$("sentence").textContent}`);
    drawReading();
  };

  // The point that is pointed at, or that of the lowest loss; its values stand in the key.
  const drawReading = () => {
    const svg = $("curves"), { box, panels, x, y } = layout();
    svg.querySelectorAll(".reading").forEach((old) => old.remove());
    const point = reading === null ? result.minimisers.risk : nearest(reading);
    for (const name in NAMES) $(`key-${name}`).textContent = loss(point[name]);
    if (reading === null) {
      $("reading").textContent = `Values at the lowest ${NAMES.risk}. Point at the curves, or use the arrow keys on them, for others.`;
      return;
    }
    const group = make("g", { class: "reading" });
    group.append(make("path", { class: "axis", d: `M${x(point.lam)},${box.bottom}V${box.top}` }));
    for (const name in NAMES) {
      const { top } = panels[name === "calibration" ? 1 : 0], height = y(name, point[name]);
      if (height >= top) group.append(mark(name, x(point.lam), height, 3.5));
    }
    svg.append(group);
    $("reading").textContent = `Values at λ = ${short(point.lam)}; error rate ${percent(point.error_rate)}.`;
  };
  const nearest = (lam) => result.points.reduce((best, point) =>
    (Math.abs(Math.log(point.lam / lam)) < Math.abs(Math.log(best.lam / lam)) ? point : best));
  const read = (lam) => { reading = lam; drawReading(); };
  const pointed = ({ offsetX }) => {
    const { box, lamAt } = layout();
    read(lamAt(clamp(offsetX, [box.left, box.right])));
  };
  $("curves").addEventListener("pointermove", pointed);
  $("curves").addEventListener("pointerdown", pointed);
  $("curves").addEventListener("pointerleave", () => read(null));
  $("curves").addEventListener("blur", () => read(null));
  $("curves").addEventListener("keydown", (event) => {
    const factor = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10 }[event.key];
    if (!factor) return;
    event.preventDefault();
    const { low, high } = layout(), from = reading ?? result.minimisers.risk.lam;
    read(clamp(from * 10 ** (factor / 10), [low, high]));
  });

  const drawDensity = () => {
    const svg = $("density"), width = Math.max(svg.clientWidth, 150), height = 92, bottom = height - 17;
    const { shape_a: a, shape_b: b, shift } = state, right = 1 + shift;
    const values = Array.from({ length: 161 }, (_, i) => (i + 0.5) / 161).map((u) =>
      [u, refinecalTheory.betaOf(Math.log(u / (1 - u)), a, b) / (u * (1 - u))]);
    const top = Math.min(Math.max(...values.map(([, value]) => value)), 6) * 1.05;
    const line = values.map(([u, value]) => [(width * (shift + u)) / right, bottom - (bottom - 2) * Math.min(1, value / top)]);
    const ends = [[line.at(-1)[0], bottom], [line[0][0], bottom]];
    svg.replaceChildren(
      make("path", { class: "law", d: `${polyline([...line, ...ends])}Z` }), make("path", { class: "law-line", d: polyline(line) }),
      make("path", { class: "axis", d: `M0,${bottom}H${width}` }),
      make("text", { class: "quiet", x: 0, y: height - 2 }, "0: informative"),
      make("text", { class: "quiet", x: width, y: height - 2, "text-anchor": "end" }, `noisy: ${digits(right, 4)}`));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    svg.setAttribute("aria-label", `Density of the variances, ${digits(shift, 3)} + Beta(${digits(a, 3)}, ${digits(b, 3)})`);
  };

  // ---- words ------------------------------------------------------------------------------------------------
  const SIGN = { "": "=", smallest: "≤", largest: "≥" }; // lowest at an end of what is computed, or beyond it
  const where = ({ lam, edge }) => `λ\u00a0${SIGN[edge]}\u00a0${short(lam)}`;
  const write = () => {
    const { risk, calibration, refinement } = result.minimisers, name = LOSSES[state.loss];
    const less = `${percent(result.gain)} less`;
    $("gain").textContent = `Chosen by refinement, then calibrated: ${less} ${name}.`;
    const gap = Math.log10(calibration.lam / refinement.lam), size = digits(Math.abs(gap), 2);
    const order = gap > 0 ? ["calibration", "refinement"] : ["refinement", "calibration"];
    const [early, late] = order.map((key) => result.minimisers[key]), more = early.edge || late.edge ? "more than " : "";
    const first = Math.abs(gap) < 0.05 ? "Calibration and refinement are lowest at nearly the same λ."
      : `From a strong penalty to a weak one, ${order[0]} is lowest first (${where(early)}), ${order[1]} `
        + `${more}${size} ${size === "1" ? "decade" : "decades"} of λ later (${where(late)}).`;
    $("sentence").textContent = `Chosen by loss: ${where(risk)}, ${name} ${loss(risk.risk)}. Chosen by refinement, then calibrated: `
      + `${where(refinement)}, ${name} ${loss(refinement.refinement)}: ${less}. ${first}`;
    $("drawn").textContent = name[0].toUpperCase() + name.slice(1);
    $("risk-head").textContent = name;
    $("choices").innerHTML = [["risk", name], ["calibration", "calibration"], ["refinement", "refinement"]].map(([key, said]) => {
      const at = result.minimisers[key];
      const cells = [where(at).replace(/^λ\s(=\s)?/, ""), loss(at.risk), loss(at.calibration), loss(at.refinement), percent(at.error_rate)];
      return `<tr><th scope="row">${said}</th>${cells.map((cell) => `<td class="number">${cell}</td>`).join("")}</tr>`;
    }).join("");
    const { ratio, bayes_error, shape_a, shape_b, shift } = state, option = state.loss === "log" ? "" : `, loss="${state.loss}"`;
    const given = `ratio=${ratio}, bayes_error=${bayes_error}, spectrum=spectrum${option}`;
    $("code").textContent = `from refinecal import theory\n\nspectrum = theory.BetaSpectrum(${shape_a}, ${shape_b}, shift=${shift})\n`
      + `theory.logistic(${digits(risk.lam, 4)}, ${given}).risk  # ${loss(risk.risk)}`;
  };
  const drawKey = () => {
    $("key").replaceChildren(...Object.keys(NAMES).map((name) => {
      const entry = document.createElement("div"), sample = make("svg", { "aria-hidden": "true" });
      sample.append(make("path", { d: "M1,6H25", stroke: `var(--plot-${name})`, "stroke-width": 2.4 }), mark(name, 13, 6, 4));
      entry.innerHTML = `<dt>${NAMES[name]}</dt><dd id="key-${name}"></dd>`;
      entry.prepend(sample);
      return entry;
    }));
  };

  // ---- all together -----------------------------------------------------------------------------------------
  const show = () => {
    NAMES.risk = LOSSES[state.loss];
    const { ratio, bayes_error: bayesError, shape_a: shapeA, shape_b: shapeB, shift } = state;
    result = refinecalTheory.path({ ratio, bayesError, shapeA, shapeB, shift, loss: state.loss });
    for (const name in sliders) sliders[name]();
    for (const radio of $("controls").elements.loss) radio.checked = radio.value === state.loss;
    for (const button of $("presets").children) {
      const { a, b } = button.dataset;
      button.setAttribute("aria-pressed", Number(a) === state.shape_a && Number(b) === state.shape_b);
    }
    drawKey();
    write();
    drawDensity();
    drawCurves();
  };
  let waiting = 0; // the browser draws 60 times a second; a slider may move more often
  const change = (values) => {
    Object.assign(state, values);
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(show);
  };
  const set = (values) => { change(values); toHash(); };

  $("presets").addEventListener("click", ({ target: { dataset } }) =>
    dataset.a && set({ shape_a: Number(dataset.a), shape_b: Number(dataset.b) }));
  for (const radio of $("controls").elements.loss) radio.addEventListener("change", () => set({ loss: radio.value }));
  $("reset").addEventListener("click", () => set(start));
  $("download").addEventListener("click", () => {
    const { ratio, bayes_error } = state, header = "lam,ratio,bayes_error,signal,inner,norm,risk,calibration,refinement,error_rate";
    const rows = result.points.map((p) =>
      [p.lam, ratio, bayes_error, result.signal, p.inner, p.norm, p.risk, p.calibration, p.refinement, p.error_rate].join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([[header, ...rows, ""].join("\n")], { type: "text/csv" }));
    link.download = "refinecal-theory.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", () => change(fromHash()));
  state = fromHash();
  show();
  new ResizeObserver(() => { drawDensity(); drawCurves(); }).observe($("curves").parentElement);
})();
