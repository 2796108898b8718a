// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Memory over time. uPlot draws the curves; a separate canvas shows the selection, so that a brush redraws only that.
"use strict";
(() => {
	const { $, head, state, el, colour } = Page;
	const { bytes, count, seconds } = Words;
	const NOBODY = [Words.before(), "(no module)", Words.OUTSIDE]; // groups without an owner, drawn lowest and grey
	const STRIP = 5; // px; height of the phases below the curves
	const BAND = 14, BANDS = 4; // px; height of a row of scopes below the phases; most rows
	const bandRows = Math.min(BANDS, head.scopes?.rows ?? 0), bandsHeight = bandRows * BAND;
	let plot = null, over = null, shown = null, names = [], hover = null, dense = false;

	const deviceSeries = () => Page.device().series ?? { t: [], allocated_min: [], allocated_max: [], reserved_max: [] };

	// Time labels with as many digits as their distance requires.
	function timeLabels(u, splits) {
		const step = splits.length > 1 ? splits[1] - splits[0] : 1;
		let digits = 0;
		while (digits < 9 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6 * step * 10 ** digits)
			digits++;
		return splits.map(s => step >= 1 && s >= 120 ? seconds(s) : s.toFixed(digits) + " s");
	}

	// Curves between t0 and t1: from the events once loaded, before that from the page's head.
	function fetch(t0, t1, width) {
		const n = Math.max(60, Math.min(2000, Math.round(width)));
		if (!state.ready)
			return { ...deviceSeries(), names: [], stack: [] };
		const s = Page.data.series(state.device, t0, t1, n);
		if (!state.bands)
			return { ...s, names: [], stack: [] };
		const b = Page.data.stackedSeries(state.device, t0, t1, n, state.bands);
		return { ...s, ...top(b, s.t.length) };
	}

	// The eight largest bands; the others are combined. Categories keep a fixed order.
	function top(b, n) {
		let order = b.names.map((name, i) => ({ name, i, most: Math.max(0, ...b.bytes[i]) })).filter(x => x.most > 0);
		if (state.bands === "category") {
			const rank = name => (head.categories ?? []).indexOf(name);
			order.sort((x, y) => rank(x.name) - rank(y.name));
		} else {
			order.sort((x, y) => NOBODY.includes(y.name) - NOBODY.includes(x.name) || y.most - x.most);
		}
		const kept = order.length > 9 ? order.slice(0, 8) : order;
		const stack = kept.map(x => b.bytes[x.i]), list = kept.map(x => x.name);
		if (kept.length < order.length) {
			const rest = new Float64Array(n);
			for (const x of order.slice(8))
				for (let k = 0; k < n; k++)
					rest[k] += b.bytes[x.i][k];
			stack.push(rest);
			list.push(Words.more(order.length - 8, state.bands === "scope" ? "scope" : "module"));
		}
		return { names: list, stack };
	}

	const scopeColour = i => Page.nthColour(i % 8);
	function bandColour(name, i) {
		if (state.bands === "category")
			return Page.categoryColour(name);
		if (NOBODY.includes(name))
			return colour(name === "(no module)" ? "less" : "c-unknown");
		if (state.bands === "phase")
			return Page.phaseColour(name || "other");
		if (state.bands === "scope" && head.scopes.names.includes(name))
			return scopeColour(head.scopes.names.indexOf(name));
		return i >= 8 ? colour("c-unknown") : Page.nthColour(i);
	}
	const bandName = name => state.bands === "category" ? Words.role(name) : state.bands === "phase" ? Words.phase(name) : name;

	// Columns: x, allocated (filled), bands from top to bottom, allocated, reserved.
	function columns(s) {
		const n = s.t.length;
		const sums = [];
		let below = new Float64Array(n);
		for (const b of s.stack) {
			const sum = new Float64Array(n);
			for (let i = 0; i < n; i++)
				sum[i] = below[i] + b[i];
			sums.push(sum);
			below = sum;
		}
		return [s.t, s.allocated_max, ...sums.reverse(), s.allocated_max, s.reserved_max];
	}

	function options(width, height) {
		const stepped = uPlot.paths.stepped({ align: 1 });
		const axis = { stroke: colour("soft"), font: "11px " + colour("font"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false } };
		const series = [{}, { stroke: null, width: 0, fill: colour("rest"), paths: stepped, points: { show: false } }];
		// So many events that lines around the bands would cover their colours.
		const line = state.ready && !dense ? 0.5 : 0;
		for (let i = names.length - 1; i >= 0; i--)
			series.push({ stroke: line ? colour("panel") : null, width: line, fill: bandColour(names[i], i), paths: stepped, points: { show: false } });
		series.push({ stroke: dense && names.length ? null : colour("ink"), width: dense ? 0.75 : 1.25, paths: stepped, points: { show: false } });
		series.push({ stroke: colour("reserved"), width: 1.5, dash: [5, 4], paths: stepped, points: { show: false } });
		return {
			width, height, series,
			padding: [12, 24, 0, 0],
			legend: { show: false },
			cursor: { y: false, points: { show: false }, drag: { x: false, y: false, setScale: false } },
			scales: { x: { time: false, range: () => state.view }, y: { range: (u, lo, hi) => [0, Math.max(1, hi) * 1.06] } },
			axes: [
				{ ...axis, size: 26 + bandsHeight, gap: 8 + bandsHeight, space: 90, values: timeLabels },
				{ ...axis, size: 72, gap: 6, space: 34, incrs: Array.from({ length: 52 }, (x, i) => 2 ** i), values: (u, splits) => splits.map(v => v ? bytes(v).replace(/\.0+ /, " ") : "0") },
			],
			// Sizes and scales are final only when uPlot draws.
			hooks: { draw: [marks, drawChoice], setCursor: [moved] },
		};
	}

	// ---- marks: phases, steps, out of memory, peak, marks with a name

	function marks(u) {
		const c = u.ctx, r = devicePixelRatio || 1, { left, top, width, height } = u.bbox;
		const x = t => u.valToPos(t, "x", true), y = v => u.valToPos(v, "y", true);
		c.save();
		c.beginPath();
		c.rect(left, 0, width, u.ctx.canvas.height);
		c.clip();
		for (const [a, b, phase] of head.phases ?? []) {
			if (b < state.view[0] || a > state.view[1] || phase === "other")
				continue;
			c.fillStyle = Page.phaseColour(phase);
			c.fillRect(x(a), top + height + r, Math.max(r, x(b) - x(a)), STRIP * r);
		}
		scopes(u, c, r);
		const steps = (head.steps ?? []).filter(s => s[1] >= state.view[0] && s[0] <= state.view[1]);
		if (steps.length && steps.length < width / (4 * r)) {
			c.strokeStyle = colour("step");
			c.fillStyle = colour("soft");
			c.font = 10 * r + "px " + colour("font");
			c.lineWidth = r;
			c.textAlign = "left";
			c.textBaseline = "alphabetic";
			const first = Page.firstStep + (head.steps ?? []).indexOf(steps[0]);
			steps.forEach((s, i) => {
				c.beginPath();
				c.moveTo(x(s[1]), top);
				c.lineTo(x(s[1]), top + height);
				c.stroke();
				const from = Math.max(x(s[0]), left), label = Page.stepWords(first + i);
				if (Math.min(x(s[1]), left + width) - from > c.measureText(label).width + 8 * r)
					c.fillText(label, from + 4 * r, top - 2 * r);
			});
		}
		const d = Page.device();
		for (const o of oomsHere()) {
			c.fillStyle = c.strokeStyle = colour("warn");
			c.lineWidth = 1.5 * r;
			c.beginPath();
			c.moveTo(x(o.time), top);
			c.lineTo(x(o.time), top + height);
			c.stroke();
			c.beginPath();
			c.moveTo(x(o.time) - 5 * r, top);
			c.lineTo(x(o.time) + 5 * r, top);
			c.lineTo(x(o.time), top + 8 * r);
			c.fill();
		}
		if (d.peak_allocated) {
			const px = x(d.peak_time), py = y(d.peak_allocated);
			c.fillStyle = colour("ink");
			c.beginPath();
			c.moveTo(px, py - 2 * r);
			c.lineTo(px - 4.5 * r, py - 9 * r);
			c.lineTo(px + 4.5 * r, py - 9 * r);
			c.fill();
		}
		named(u, c, r);
		c.restore();
	}

	// Runs of scopes, each below those around it, with its name where there is room.
	function scopes(u, c, r) {
		const { left, top, width, height } = u.bbox, x = t => u.valToPos(t, "x", true);
		c.font = 10 * r + "px " + colour("font");
		c.textAlign = "left";
		c.textBaseline = "middle";
		for (const [scope, row, a, b] of head.scopes?.runs ?? []) {
			if (row >= bandRows || b < state.view[0] || a > state.view[1])
				continue;
			const from = Math.max(left, x(a)), to = Math.min(left + width, x(b)), y = top + height + (STRIP + 2 + row * BAND) * r;
			const name = head.scopes.names[scope].split(" > ").pop();
			c.globalAlpha = 0.35;
			c.fillStyle = scopeColour(scope);
			c.fillRect(from, y, Math.max(r, to - from), (BAND - 2) * r);
			c.globalAlpha = 1;
			if (to - from > c.measureText(name).width + 6 * r) {
				c.fillStyle = colour("ink");
				c.fillText(name, from + 3 * r, y + (BAND - 2) * r / 2);
			}
		}
		c.textBaseline = "alphabetic";
	}

	// The runs at a time, outermost first.
	const scopesAt = t => (head.scopes?.runs ?? []).filter(s => s[2] <= t && t <= s[3]).sort((a, b) => a[1] - b[1]);

	// Marks with a name, without those of a change of detail, which the head of the page has.
	const marksHere = () => (head.capture?.marks ?? []).filter(m => m.time >= state.view[0] && m.time <= state.view[1] && !m.name.startsWith("detail: "));

	// The name stands right of its line, or left of it, where there is room.
	function named(u, c, r) {
		const { left, top, width, height } = u.bbox, all = marksHere();
		const xs = all.map(m => u.valToPos(m.time, "x", true));
		let from = left;
		c.lineWidth = r;
		c.font = 10 * r + "px " + colour("font");
		c.textAlign = "left";
		c.textBaseline = "alphabetic";
		all.forEach((m, i) => {
			const x = xs[i], w = c.measureText(m.name).width + 8 * r, next = xs[i + 1] ?? left + width;
			c.strokeStyle = colour("mark");
			c.setLineDash([3 * r, 2 * r]);
			c.beginPath();
			c.moveTo(x, top);
			c.lineTo(x, top + height);
			c.stroke();
			c.setLineDash([]);
			const at = x + w <= next ? x : x - w >= from ? x - w : null;
			from = at === null ? x : Math.max(x, at + w);
			if (at === null)
				return;
			c.fillStyle = colour("panel");
			c.fillRect(at + 2 * r, top + r, w - 4 * r, 13 * r);
			c.fillStyle = colour("mark");
			c.fillText(m.name, at + 4 * r, top + 11 * r);
		});
	}

	const oomsHere = () => (head.ooms ?? []).filter(o => o.device === Page.device().name || o.device === state.device);

	// ---- selection

	function drawChoice() {
		if (!plot || !over)
			return;
		const r = devicePixelRatio || 1, w = plot.bbox.width / r, h = plot.bbox.height / r;
		const c = Page.fit(over, w, h);
		const x = t => plot.valToPos(t, "x");
		const b = x(state.time);
		if (state.from !== null) {
			const a = x(Page.timeOf(state.from));
			c.fillStyle = colour("brush");
			c.fillRect(a, 0, Math.max(1, b - a), h);
			c.fillStyle = colour("accent");
			c.fillRect(a - 1, 0, 2, h);
		}
		c.fillStyle = colour("accent");
		c.fillRect(b - 1, 0, 2, h);
		c.beginPath();
		c.arc(b, 3, 3.5, 0, 7);
		c.fill();
	}

	// ---- pointer and wheel

	function moved(u) {
		hover = u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null;
		if (hover === null || state.brushing || !shown || !matchMedia("(hover: hover)").matches) {
			Page.hideTip();
			return;
		}
		const s = shown;
		let i = upper(s.t, hover) - 1;
		if (i < 0) {
			Page.hideTip();
			return;
		}
		const near = oomsHere().find(o => Math.abs(u.valToPos(o.time, "x") - u.cursor.left) < 6);
		const r = u.over.getBoundingClientRect();
		const lines = [timeText(hover), `${bytes(s.allocated_max[i])} allocated`, s.reserved_max[i] ? `${bytes(s.reserved_max[i])} reserved` : null];
		s.names.map((name, k) => [name, s.stack[k][i]]).filter(b => b[1] > 0).sort((a, b) => b[1] - a[1]).slice(0, 8)
			.forEach(([name, v]) => lines.push(`${bytes(v)} ${bandName(name)}`));
		const step = Page.stepAt(hover);
		if (step)
			lines[0] += `, ${Page.stepWords(step[0])}`;
		const phase = (head.phases ?? []).find(p => p[0] <= hover && hover <= p[1]);
		if (phase)
			lines[0] += `, ${Words.phase(phase[2])}`;
		for (const s of scopesAt(hover).slice(0, BANDS))
			lines.push(`${head.scopes.names[s[0]]} #${s[4]}` + (s[5] === null ? "" : `: peak ${bytes(s[5])}`));
		const marks = marksHere().filter(m => Math.abs(u.valToPos(m.time, "x") - u.cursor.left) < 6);
		lines.splice(1, 0, ...marks.slice(0, 4).map(m => `Mark: ${m.name}`));
		if (near)
			lines.splice(1, 0, `Out of memory: ${bytes(near.asked)} requested` + (near.file ? `, ${near.file.slice(near.file.lastIndexOf("/") + 1)}:${near.line}` : ""), ...near.why ? [near.why] : []);
		Page.tip(lines, r.left + u.cursor.left, r.top + Math.min(u.cursor.top, 60));
	}

	function upper(a, v) {
		let lo = 0, hi = a.length;
		while (lo < hi) {
			const mid = (lo + hi) >> 1;
			if (a[mid] <= v)
				lo = mid + 1;
			else
				hi = mid;
		}
		return lo;
	}

	function timeText(t) {
		return seconds(t, (state.view[1] - state.view[0]) / 100);
	}

	// A time near a mark (4 px) means the mark.
	function timeAt(px) {
		const near = [Page.device().peak_time, ...oomsHere().map(o => o.time), ...marksHere().map(m => m.time)].find(t => Math.abs(plot.valToPos(t, "x") - px) < 4);
		return near ?? plot.posToVal(Math.max(0, Math.min(plot.bbox.width / (devicePixelRatio || 1), px)), "x");
	}

	function pointers(box) {
		// Cached while a brush is held, because reading it forces a layout by the browser.
		let down = null;
		const px = e => e.clientX - (down?.left ?? box.getBoundingClientRect().left);
		box.addEventListener("pointerdown", e => {
			if (e.button || !state.ready)
				return;
			down = { left: box.getBoundingClientRect().left, x: px(e), m: Page.data.at(state.device, timeAt(px(e))), moved: false };
			box.setPointerCapture(e.pointerId);
			$("plot").focus({ preventScroll: true });
			e.preventDefault();
		});
		box.addEventListener("pointermove", e => {
			if (!down || (!down.moved && Math.abs(px(e) - down.x) < 4))
				return;
			down.moved = true;
			Page.hideTip();
			Page.set({ brushing: true });
			Page.chooseWindow(down.m, Page.data.at(state.device, timeAt(px(e))));
		});
		const up = e => {
			if (!down)
				return;
			if (!down.moved && e.type === "pointerup")
				Page.chooseTime(timeAt(px(e)));
			down = null;
			Page.set({ brushing: false });
		};
		box.addEventListener("pointerup", up);
		box.addEventListener("pointercancel", up);
		box.addEventListener("dblclick", Page.showAll);
		box.addEventListener("wheel", e => {
			e.preventDefault();
			const [a, b] = state.view, at = plot.posToVal(px(e), "x");
			if (Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey) {
				const by = (e.deltaX || e.deltaY) / box.clientWidth * (b - a);
				Page.show(a + by, b + by);
			} else {
				const k = Math.exp(Math.max(-60, Math.min(60, e.deltaY)) * 0.006);
				Page.show(at - (at - a) * k, at + (b - at) * k);
			}
		}, { passive: false });
	}

	function zoomBy(k) {
		const [a, b] = state.view, at = state.time >= a && state.time <= b ? state.time : (a + b) / 2;
		Page.show(at - (at - a) * k, at + (b - at) * k);
	}

	function showChoice() {
		const a = state.from === null ? null : Page.timeOf(state.from), step = Page.stepAt(state.time);
		if (a !== null)
			Page.show(a - (state.time - a) * 0.05, state.time + (state.time - a) * 0.05);
		else if (step)
			Page.show(step[1] - (step[2] - step[1]) * 0.1, step[2] + (step[2] - step[1]) * 0.1);
	}

	// ---- overview of the whole recording

	let mapWidth = 0;
	function drawMap() {
		const map = $("map"), w = mapWidth, h = 26;
		if (w <= 0)
			return;
		const c = Page.fit(map, w, h), s = deviceSeries(), place = t => (t - Page.START) / (Page.END - Page.START) * w;
		const most = Math.max(1, ...s.allocated_max);
		c.fillStyle = colour("map");
		c.beginPath();
		c.moveTo(0, h);
		let y = h;
		for (let i = 0; i < s.t.length; i++) {
			const x = place(s.t[i]);
			c.lineTo(x, y);
			y = h - s.allocated_max[i] / most * (h - 3);
			c.lineTo(x, y);
		}
		c.lineTo(w, y);
		c.lineTo(w, h);
		c.fill();
		const a = place(state.view[0]), b = Math.max(a + 3, place(state.view[1]));
		c.fillStyle = colour("veil");
		c.fillRect(0, 0, a, h);
		c.fillRect(b, 0, w - b, h);
		c.strokeStyle = colour("accent");
		c.strokeRect(a + 0.5, 0.5, Math.max(2, b - a - 1), h - 1);
		c.fillStyle = colour("accent");
		c.fillRect(place(state.time) - 0.5, 0, 1.5, h);
	}

	function mapPointers() {
		const map = $("map");
		let held = false;
		const go = e => {
			const r = map.getBoundingClientRect(), t = Page.START + (e.clientX - r.left) / r.width * (Page.END - Page.START), half = (state.view[1] - state.view[0]) / 2;
			Page.show(t - half, t + half);
		};
		map.addEventListener("pointerdown", e => { held = true; map.setPointerCapture(e.pointerId); go(e); });
		map.addEventListener("pointermove", e => held && go(e));
		map.addEventListener("pointerup", () => { held = false; });
	}

	// ---- drawing

	function legend() {
		const items = names.map((name, i) => {
			const swatch = el("i");
			swatch.style.backgroundColor = bandColour(name, i);
			return el("li", {}, swatch, bandName(name));
		});
		if (shown.reserved_max.some(v => v > 0))
			items.push(el("li", {}, el("i", { className: "dash" }), "reserved"));
		$("legend").replaceChildren(...items);
	}

	function make() {
		const box = $("plot");
		plot?.destroy();
		over = el("canvas", { className: "choice" });
		plot = new uPlot(options(box.clientWidth, box.clientHeight), columns(shown), box);
		plot.over.append(over);
		pointers(plot.over);
		plot.over.addEventListener("pointerleave", Page.hideTip);
		legend();
	}

	// If reading the curves is slow, first move the existing ones and read new ones after a pause.
	let cost = 0, later = 0;
	function draw(changed) {
		const box = $("plot");
		if (!box.clientWidth)
			return;
		clearTimeout(later);
		if (changed?.size === 1 && changed.has("view") && cost > 8) {
			plot.setScale("x", { min: state.view[0], max: state.view[1] });
			drawMap();
			later = setTimeout(draw, 90);
			return;
		}
		mapWidth = $("map").parentElement.clientWidth - 2 * parseFloat(colour("pad"));
		const from = performance.now();
		shown = fetch(state.view[0], state.view[1], box.clientWidth - 80);
		cost = performance.now() - from;
		const same = plot && names.length === shown.names.length && names.every((x, i) => x === shown.names[i]);
		names = shown.names;
		const was = dense;
		dense = state.ready && Page.data.at(state.device, state.view[1]) - Page.data.at(state.device, state.view[0]) >= 2 * box.clientWidth;
		if (!same || dense !== was || changed?.has("theme") || changed?.has("bands"))
			make();
		else
			plot.setData(columns(shown));
		drawMap();
		twin();
	}

	let twin = () => {};
	function start() {
		twin = Page.twin($("time").querySelector("details"), () => ({
			columns: ["time", "lowest allocated", "highest allocated", "highest reserved", ...shown.names.map(bandName)],
			rows: Array.from({ length: Math.min(40, shown.t.length) }, (x, k) => Math.floor(k * shown.t.length / Math.min(40, shown.t.length)))
				.map(i => [timeText(shown.t[i]), ...[shown.allocated_min[i], shown.allocated_max[i], shown.reserved_max[i], ...shown.stack.map(b => b[i])].map(v => bytes(v))]),
			note: `From ${timeText(state.view[0])} to ${timeText(state.view[1])}. Peak ${bytes(Page.device().peak_allocated)} at ${seconds(Page.device().peak_time)}, ` +
				`${Page.stepsWords(Page.firstStep + (head.steps ?? []).length)}, ${count(oomsHere().length)} out-of-memory errors.` +
				marksHere().map(m => ` ${timeText(m.time)}: ${m.name}.`).join(""),
		}));
		mapPointers();
		$("zoom-in").addEventListener("click", () => zoomBy(0.5));
		$("zoom-out").addEventListener("click", () => zoomBy(2));
		$("zoom-all").addEventListener("click", Page.showAll);
		$("zoom-choice").addEventListener("click", showChoice);
		$("bands").addEventListener("change", e => Page.set({ bands: e.target.value }));
		Page.watch(["bands"], () => { $("bands").value = state.bands; });
		Page.watch(["view", "device", "bands", "ready", "theme"], draw);
		Page.watch(["moment", "from", "time"], () => { drawChoice(); drawMap(); });
		let size = "";
		new ResizeObserver(() => {
			const box = $("plot"), now = box.clientWidth + "x" + box.clientHeight;
			if (now === size || !plot)
				return;
			size = now;
			plot.setSize({ width: box.clientWidth, height: box.clientHeight });
			draw();
		}).observe($("plot"));
		draw();
	}

	Page.timeline = { start, zoomBy, showChoice, oomsHere, get plot() { return plot; } };
})();
