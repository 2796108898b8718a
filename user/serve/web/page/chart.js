// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The selected process: figures of its devices, and a live chart of the selected device.
"use strict";
(() => {
	const { $, el, state, model, colour } = Page;
	const { bytes, seconds } = Words;
	const HOST = "host"; // resident memory of the process
	const RANGES = [[60, "1 min"], [300, "5 min"], [900, "15 min"]];
	let plot = null, shape = "", drawn = [];

	// The devices of a sample, with host memory as another one.
	function devicesOf(s) {
		const list = (s?.devices ?? []).slice();
		if (s?.rss !== undefined)
			list.push({ device: HOST, resident: s.rss });
		return list;
	}

	function current() {
		const list = devicesOf(Page.chosenProcess()?.last);
		return list.find(d => d.device === state.device) ?? list[0];
	}

	// ---- figures

	const LABELS = [["allocated", "allocated"], ["reserved", "reserved"], ["peak_allocated", "peak"]];

	function tile(d, p) {
		const b = el("button", { className: "tile" });
		if (d.device === HOST) {
			b.classList.add("small");
			b.append(el("span", { className: "t-name" }, "host memory"), el("span", { className: "t-figures" }, el("b", { textContent: bytes(d.resident) }), " resident"),
				el("span", { className: "t-figures", textContent: p.tensors ? `${bytes(p.tensors.bytes)} of it in tensors (read at ${Page.clock(p.tensors.time)}); the rest is libraries, Python and free heap` : "tensors on the CPU, libraries, Python and free heap" }));
			return b;
		}
		const figures = LABELS.filter(([k]) => d[k] !== undefined).map(([k, word]) => el("span", { className: "t-" + k }, el("b", { textContent: bytes(d[k]) }), " " + word));
		const rest = [d.total !== undefined && "of " + bytes(d.total), d.used !== undefined && bytes(d.used) + " in use by all processes"].filter(Boolean).join(", ");
		const bad = [d.ooms && `${d.ooms} out of memory`, d.retries && `${d.retries} ${d.retries === 1 ? "retry" : "retries"}`].filter(Boolean).join(", ");
		b.append(el("span", { className: "t-name" }, d.device, el("span", { className: "quiet", textContent: rest })), Page.meter(d),
			el("span", { className: "t-figures" }, ...figures, bad ? el("span", { className: "warn", textContent: bad }) : null));
		return b;
	}

	let tiles = "";
	function devices(p) {
		const list = devicesOf(p?.last), names = list.map(d => d.device);
		$("devices").hidden = !list.length;
		const same = [state.chosen, names.join(), state.device, JSON.stringify(list), p?.tensors?.time].join("\n");
		if (same === tiles)
			return;
		tiles = same;
		Page.radios($("devices"), names, current()?.device, name => Page.set({ device: name }), name => tile(list[names.indexOf(name)], p));
	}

	// ---- the chart

	// The allocator's own peak includes values between two samples.
	const NAMES = { peak_allocated: "peak so far" };
	const SERIES = { resident: ["resident"], other: ["allocated", "peak_allocated", "reserved"] };
	const keysOf = d => d?.device === HOST ? SERIES.resident : SERIES.other;

	function columns(p, name, keys) {
		const t = [], values = keys.map(() => []);
		let last = 0;
		for (const s of p.samples) {
			// Leave a gap in the curves if samples are missing.
			if (last && s.time - last > 5 * (model.hello?.interval ?? 1) + 2) {
				t.push((s.time + last) / 2);
				values.forEach(v => v.push(null));
			}
			last = s.time;
			const d = name === HOST ? { resident: s.rss } : (s.devices ?? []).find(x => x.device === name) ?? {};
			t.push(s.time);
			keys.forEach((k, i) => values[i].push(d[k] ?? null));
		}
		return [t, ...values];
	}

	// The range ends with the last sample, because the clocks of browser and server may differ.
	function shown() {
		const p = Page.chosenProcess(), to = p?.last?.time ?? Date.now() / 1000;
		// Begin at the first sample, but show at least a minute.
		return [Math.max(to - state.range, Math.min(to - RANGES[0][0], p?.samples[0]?.time ?? to)), to];
	}

	function options(width, height, keys) {
		const axis = { stroke: colour("soft"), font: "11px " + colour("font"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false } };
		const style = {
			allocated: { stroke: colour("accent"), width: 1.5, fill: colour("brush") },
			resident: { stroke: colour("accent"), width: 1.5, fill: colour("brush") },
			peak_allocated: { stroke: colour("ink"), width: 1, dash: [2, 4] },
			reserved: { stroke: colour("reserved"), width: 1.5, dash: [5, 4] },
		};
		const stepped = uPlot.paths.stepped({ align: 1 });
		return {
			width, height,
			series: [{}, ...keys.map(k => ({ ...style[k], paths: stepped, points: { show: false } }))],
			padding: [10, 30, 0, 0],
			legend: { show: false },
			cursor: { y: false, points: { show: false }, drag: { x: false, y: false, setScale: false } },
			scales: { x: { time: true, range: shown }, y: { range: (u, lo, hi) => [0, Math.max(1, hi ?? 1) * 1.08] } },
			axes: [
				{ ...axis, size: 24, gap: 6, space: 80, values: (u, splits) => splits.map(v => Page.clock(v)) },
				{ ...axis, size: 72, gap: 6, space: 30, incrs: Array.from({ length: 52 }, (x, i) => 2 ** i), values: (u, splits) => splits.map(v => v ? bytes(v).replace(/\.0+ /, " ") : "0") },
			],
			hooks: { drawClear: [captures], setCursor: [moved] },
		};
	}

	// Marks the times of this process's captures behind the curves.
	function captures(u) {
		const p = Page.chosenProcess(), c = u.ctx, { left, top, width, height } = u.bbox;
		for (const t of model.traces.values()) {
			if (!p || t.pid !== p.pid || !t.begun || t.begun < p.started)
				continue;
			const to = t.state === "starting" || t.state === "capturing" ? shown()[1] : t.begun + (t.seconds ?? 0);
			const a = Math.max(left, u.valToPos(t.begun, "x", true)), b = Math.min(left + width, u.valToPos(to, "x", true));
			if (b <= a)
				continue;
			c.save();
			c.fillStyle = colour("raise");
			c.fillRect(a, top, b - a, height);
			c.fillStyle = colour("p-optimizer");
			c.fillRect(a, top, Math.max(2, b - a), 2 * (devicePixelRatio || 1));
			c.restore();
		}
	}

	function moved(u) {
		const i = u.cursor.idx;
		if (u.cursor.left < 0 || i === null || i === undefined || !matchMedia("(hover: hover)").matches) {
			Page.hideTip();
			return;
		}
		const r = u.over.getBoundingClientRect();
		const lines = drawn.map((k, n) => u.data[n + 1][i] === null || u.data[n + 1][i] === undefined ? null : `${bytes(u.data[n + 1][i])} ${NAMES[k] ?? k}`);
		Page.tip([Page.clock(u.data[0][i]), ...lines], r.left + u.cursor.left, r.top + Math.min(u.cursor.top, 40));
	}

	function legend(keys) {
		const items = keys.map(k => {
			const i = el("i", { className: { reserved: "dash", peak_allocated: "dots" }[k] ?? "" });
			if (!i.className)
				i.style.background = colour("accent");
			return el("li", {}, i, NAMES[k] ?? k);
		});
		const i = el("i", { className: "cap" });
		items.push(el("li", {}, i, "captured"), el("li", { id: "chart-span", className: "quiet" }));
		$("legend").replaceChildren(...items);
	}

	// Says how far the figures go back, if that is less than the selected range.
	function span(p) {
		const first = p.samples[0]?.time, long = first ? p.last.time - first : 0;
		$("chart-span").textContent = first && long < state.range - 2 * (model.hello?.interval ?? 1) ? `${seconds(Math.round(long)).replace(/\.0+ /, " ")} of figures so far` : "";
	}

	function draw() {
		if (state.route.view !== "home")
			return;
		const p = Page.chosenProcess(), d = current(), box = $("chart"), on = Boolean(p && d);
		devices(p);
		box.hidden = $("chart-bar").hidden = !on;
		says(p, d);
		if (!on || !box.clientWidth)
			return;
		const keys = keysOf(d).filter(k => k === keysOf(d)[0] || d[k] !== undefined), now = [keys.join(), state.theme].join("\n");
		if (!plot || now !== shape) {
			shape = now;
			drawn = keys;
			plot?.destroy();
			plot = new uPlot(options(box.clientWidth, box.clientHeight, keys), columns(p, d.device, keys), box);
			plot.over.addEventListener("pointerleave", Page.hideTip);
			legend(keys);
		} else {
			plot.setData(columns(p, d.device, keys));
		}
		span(p);
	}

	let said = "";
	function says(p, d) {
		$("chart-says").textContent = p && d ? `${d.device}: ${LABELS.filter(([k]) => d[k] !== undefined).map(([k, w]) => `${bytes(d[k])} ${w}`).join(", ") || bytes(d.resident ?? 0)}` : "";
		const t = Page.chosenTarget();
		let text = "";
		if (said === [p?.pid, p?.gone, p?.last?.why, Boolean(p?.last), p?.tensors?.time, d?.device, t?.name].join())
			return;
		said = [p?.pid, p?.gone, p?.last?.why, Boolean(p?.last), p?.tensors?.time, d?.device, t?.name].join();
		if (p?.gone)
			text = "This process has ended.";
		else if (p && !p.last)
			text = "Waiting for the first figures.";
		else if (p?.last?.why)
			text = `No device figures: ${p.last.why}.`;
		else if (p && !d)
			text = "This process has not used PyTorch’s memory yet.";
		else if (t)
			text = t.kind === "command" ? "The server runs this command when you capture it." : `No process matches ${t.pattern ?? ""} yet.`;
		$("job-says").replaceChildren(text, ...(p && !p.gone && p.last?.why && !p.tensors ? [" ", el("button", { type: "button", className: "link", textContent: "Read how much of the host memory is in tensors", onclick: () => Page.holds.open() })] : []));
		$("job-says").hidden = !text;
	}

	function ranges() {
		Page.radios($("ranges"), RANGES.map(r => r[0]), state.range, range => Page.set({ range }), range => el("button", { textContent: RANGES.find(r => r[0] === range)[1] }));
	}

	function title() {
		const p = Page.chosenProcess(), t = Page.chosenTarget(), r = p ? { process: p } : t ? { target: t } : null;
		$("job").hidden = !r;
		$("job-name").textContent = r ? Page.jobs.titleOf(r) : "";
		$("job-name").title = r ? Page.jobs.fullTitle(r) : "";
		$("job-facts").textContent = r && p ? Page.jobs.under(r) : "";
		$("holds").hidden = !p || p.gone;
	}

	// The growth that the latest captures of the process have found: the first of them that knows it.
	function growth() {
		const p = Page.chosenProcess(), box = $("job-growth");
		const [t] = [...model.traces.values()].filter(t => p && t.pid === p.pid && t.begun >= p.started && Page.traces.growthOf(t)).sort((a, b) => b.begun - a.begun);
		box.hidden = !t;
		if (!t)
			return;
		const g = Page.traces.growthOf(t), text = Page.traces.growthText(t, g), grows = g.verdict === "grows";
		box.classList.toggle("bad", grows);
		box.href = Page.traces.growthAddress(t);
		box.title = "Open the growth of this capture";
		box.replaceChildren(el("span", { className: "quiet", textContent: "Growth" }), " ", el("b", { textContent: grows ? text : text.slice(0, 1).toUpperCase() + text.slice(1) }),
			" ", el("span", { className: "quiet", textContent: `· capture of ${Page.clock(t.begun)}` }));
	}

	function start() {
		Page.watch(["chosen", "processes", "traces"], growth);
		Page.watch(["chosen"], () => { state.device = ""; title(); draw(); });
		Page.watch(["processes", "targets"], title);
		Page.watch(["samples", "processes", "device", "theme", "range", "route", "traces"], draw);
		Page.watch(["range"], ranges);
		ranges();
		title();
		new ResizeObserver(() => {
			const box = $("chart");
			if (plot && box.clientWidth && (plot.width !== box.clientWidth || plot.height !== box.clientHeight))
				plot.setSize({ width: box.clientWidth, height: box.clientHeight });
			else if (!plot)
				draw();
		}).observe($("chart"));
	}

	Page.chart = { start, get plot() { return plot; } };
})();
