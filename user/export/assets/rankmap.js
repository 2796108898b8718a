// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Ranks of a job as a grid of cells, from the document of `report --together --outliers`. Which ranks differ, and where,
// is what the report says; nothing is judged here.
"use strict";
const RankMap = (() => {
	const { el, tip, hideTip, fit, colour } = Kit;
	const { bytes, count } = Words;
	const LEAST = 7, WIDE = 92, HIGH = 64; // sizes of a cell, px
	const SAID = 4; // most differences of a rank that are said
	const LISTED = 200; // most ranks in the list of those that differ
	// One hue, whose lightness changes evenly: it needs no colour vision. From few to many, away from the page's background.
	const LIGHT = [[226, 236, 247], [158, 202, 225], [74, 146, 200], [14, 86, 160], [8, 42, 96]];
	const DARK = [[36, 50, 70], [30, 84, 138], [58, 134, 196], [134, 194, 240], [222, 240, 255]];

	const grows = r => r.growth.filter(g => g.verdict === "grows" && g.bytes_per_step > 0).sort((a, b) => b.bytes_per_step - a.bytes_per_step)[0];
	const growth = r => grows(r)?.bytes_per_step ?? (r.growth.length && r.growth.every(g => g.verdict === "no_growth") ? 0 : null);
	const duration = s => s < 1 ? `${(s * 1000).toFixed(s < 0.1 ? 1 : 0)} ms` : Words.seconds(s);
	// Values of a cell: null if it is not known.
	const WHAT = {
		memory: { title: "Memory", of: r => r.allocated, text: bytes },
		growth: { title: "Growth per step", of: growth, text: n => n ? `+${bytes(Math.round(n))}` : "none" },
		time: { title: "Time of a step", of: r => r.step_time, text: duration },
	};

	const moment = doc => ({ peak: "at the peak", end: "at the end", oom: "when it was out of memory" })[doc.at] ?? "at the moment chosen";
	const base = file => (file ?? "").slice((file ?? "").lastIndexOf("/") + 1);
	const where = row => row.file || row.function ? base(row.file) + (row.line ? ":" + row.line : "") + (row.function ? ` (${row.function})` : "") :
		row.name || row.module || row.category || row.phase || (row.before_attach ? "memory from " + Words.before() : "memory without a Python line");

	// A line has a row for each role and phase of its memory.
	const place = row => [where(row), row.file && row.category && row.category !== "unknown" && Words.role(row.category), row.file && row.phase && row.phase !== "other" && Words.inPhase(row.phase)].filter(Boolean).join(", ");
	const some = says => says.length > SAID + 1 ? [...says.slice(0, SAID), Words.more(says.length - SAID, "difference")] : says;

	// 0-4 7 9-12
	function ranges(numbers) {
		const out = [];
		for (const n of [...numbers].sort((a, b) => a - b)) {
			if (out.length && out.at(-1)[1] === n - 1)
				out.at(-1)[1] = n;
			else
				out.push([n, n]);
		}
		return out.map(([a, b]) => a === b ? String(a) : `${a}-${b}`).join(" ");
	}

	// What the document says about each recording, in the order of the grid.
	function cells(doc) {
		const rows = new Map(doc.rows.map(r => [r.index, r])), all = doc.recordings.map((r, i) => ({ ...r, i, says: [], label: doc.one_job && r.rank !== null ? `rank ${r.rank}` : r.recording }));
		const others = doc.recordings.length === 2 ? "the other has" : "the others’ median is";
		for (const o of doc.outliers) {
			const row = o.row === null ? null : rows.get(o.row), percent = o.others_median ? ` (${(100 * Math.abs(o.difference) / o.others_median).toFixed(0)} %)` : "";
			all[o.recording].differs = true;
			all[o.recording].says.push(`${bytes(Math.abs(o.difference))} ${o.difference > 0 ? "more" : "less"}${percent} ${row ? "at " + place(row) : "in all"}: ${bytes(o.bytes)}, ${others} ${bytes(o.others_median)}`);
		}
		for (const o of doc.step_outliers) {
			all[o.recording].differs = true;
			all[o.recording].says.push(`${o.step_time > o.others_median ? "slower" : "faster"}: ${duration(o.step_time)} a step, ${others} ${duration(o.others_median)}`);
		}
		const shown = all.filter(r => !r.worker);
		if (!doc.one_job)
			return shown;
		// If the job has several hosts, each rank is shown with the name of its host.
		if (new Set(shown.map(r => r.host).filter(Boolean)).size > 1)
			for (const r of shown)
				r.on = r.host;
		// Ranks without a recording get an empty cell, unless the numbers make no sense.
		const most = Math.max(...shown.map(r => r.rank), ...(doc.missing ?? []).map(m => m.rank ?? 0), ...shown.map(r => (r.world_size ?? 0) - 1));
		if (most >= 4 * shown.length + 64)
			return shown;
		const slots = Array.from({ length: most + 1 }, (_, n) => ({ absent: true, label: `rank ${n}`, rank: n, says: [] }));
		for (const r of shown)
			slots[r.rank] = r;
		for (const m of doc.missing ?? [])
			if (m.rank !== null && slots[m.rank]?.absent)
				slots[m.rank].says.push([m.host, m.why].filter(Boolean).join(": "));
		return slots;
	}

	// Ranks of a node: their number, if all nodes have as many and they follow each other. 0: not known.
	function perNode(all) {
		const known = all.filter(r => !r.absent);
		const n = Math.max(0, ...known.map(r => (r.local_rank ?? -1) + 1));
		return n > 1 && n < all.length && known.every(r => r.local_rank !== null && r.rank !== null && r.rank % n === r.local_rank) ? n : 0;
	}

	const named = r => r.on ? `${r.label} on ${r.on}` : r.label;

	// A word for each: what is in the cell, what differs.
	function words(r, doc) {
		if (r.absent)
			return [r.label, r.says[0] ?? "no recording"];
		const group = r.group === null || r.group === undefined ? null : doc.groups[r.group];
		const alike = group?.recordings.filter(i => i !== r.i).map(i => doc.recordings[i].rank ?? i);
		return [named(r), `${bytes(r.allocated)} ${moment(doc)}`, r.says.length ? some(r.says).join("; ") : "not different from the others",
			grows(r)?.text ?? (growth(r) === 0 ? "no growth" : r.growth.find(g => g.verdict === "unknown" && g.text)?.text ?? "growth not known"), r.step_time ? `${duration(r.step_time)} a step` : null,
			doc.one_job && alike ? (alike.length ? `allocates like ${alike.length === 1 ? "rank" : "ranks"} ${ranges(alike)}` : "no other rank allocates like it") : null].filter(Boolean);
	}

	const mix = t => {
		const scale = Kit.isDark() ? DARK : LIGHT, x = Math.max(0, Math.min(1, t)) * (scale.length - 1), i = Math.min(scale.length - 2, Math.floor(x)), f = x - i;
		return scale[i].map((c, k) => Math.round(c + (scale[i + 1][k] - c) * f));
	};
	// A host that all ranks of a row are on, with its ends if it is long.
	const short = name => name.length > 14 ? `${name.slice(0, 6)}…${name.slice(-7)}` : name;
	const hostOf = row => { const known = new Set(row.filter(r => !r.absent).map(r => r.on)); return known.size === 1 ? [...known][0] : null; };
	const css = c => `rgb(${c.join(" ")})`;
	const inkOn = c => 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2] > 128 ? "#10151c" : "#ffffff";

	/*
	 * box: an empty element that is as high as the grid may be. open(recording): a cell was chosen. said(words): the cell
	 * under the mark. Returns {show(doc), colour(what), draw(), mark(i), cells, at}.
	 */
	function make(box, { open, said }) {
		const canvas = el("canvas", { "aria-hidden": "true" });
		const cell = el("span", { role: "gridcell", id: box.id + "-cell", className: "sr" }), row = el("div", { role: "row" }, cell);
		let doc = null, all = [], node = 0, what = "memory", at = 0, lay = null, low = 0, high = 1;
		box.replaceChildren(canvas, row);
		box.tabIndex = 0;
		box.setAttribute("role", "grid");

		const value = r => r.absent ? null : WHAT[what].of(r) ?? null;

		// Differences below the limit of the report for outliers keep a similar colour.
		function scale() {
			const values = all.map(value).filter(v => v !== null);
			high = Math.max(0, ...values);
			low = what === "growth" ? 0 : Math.min(...values, high * (1 - doc.outlier_limits.percent / 100));
		}

		function layout() {
			const margin = all.some(r => r.on) && node ? 100 : 44, w = Math.max(120, box.clientWidth - margin - 14), h = Math.max(80, box.clientHeight - 14), n = all.length, step = node || 1;
			let best = null;
			for (let k = 1; k < 2 * Math.ceil(n / step); k *= 2) { // rows of 64 rather than 56
				const cols = k * step, rows = Math.ceil(n / cols), gap = node ? 6 : 0;
				const cw = Math.min(WIDE, Math.floor((w - gap * (k - 1)) / cols)), ch = Math.min(HIGH, Math.floor(h / rows), cw * 2), score = Math.min(cw, 2 * ch);
				if (cw >= LEAST && (!best || score >= best.score))
					best = { cols, rows, gap, cw, ch: Math.max(LEAST, Math.min(ch, cw)), score };
			}
			lay = best ?? { cols: step, rows: Math.ceil(n / step), gap: 0, cw: LEAST, ch: LEAST };
			lay.margin = margin;
		}
		const place_ = i => {
			const c = i % lay.cols;
			return [lay.margin + c * lay.cw + (node ? Math.floor(c / node) * lay.gap : 0), 4 + Math.floor(i / lay.cols) * lay.ch];
		};

		function paint(c, r, i) {
			const [x, y] = place_(i), w = lay.cw - 1, h = lay.ch - 1, v = value(r);
			const fill = v === null ? null : mix(high > low ? (v - low) / (high - low) : 0);
			c.fillStyle = fill ? css(fill) : colour("gap");
			c.fillRect(x, y, w, h);
			if (v === null) {
				c.strokeStyle = colour("less");
				c.lineWidth = 1;
				c.beginPath();
				c.moveTo(x + 2, y + h - 2);
				c.lineTo(x + w - 2, y + 2);
				c.stroke();
			}
			if (w < 24 || h < 13)
				return;
			c.fillStyle = fill ? inkOn(fill) : colour("soft");
			c.font = "600 11px sans-serif";
			c.fillText(doc.one_job ? String(r.rank) : String(i), x + 4, y + 12);
			if (w > 66 && h > 27 && v !== null) {
				c.font = "11px sans-serif";
				c.fillText(WHAT[what].text(v), x + 4, y + h - 5);
			}
		}

		// A frame in two colours is seen on every cell. In a small one there is room for the outer colour only.
		function frame(c, i, outer, inner, grow) {
			const [x, y] = place_(i);
			c.lineWidth = 2;
			c.strokeStyle = outer;
			c.strokeRect(x - grow, y - grow, lay.cw - 1 + 2 * grow, lay.ch - 1 + 2 * grow);
			if (lay.ch < 14)
				return;
			c.lineWidth = 1;
			c.strokeStyle = inner;
			c.strokeRect(x + 1.5 - grow, y + 1.5 - grow, lay.cw - 4 + 2 * grow, lay.ch - 4 + 2 * grow);
		}

		function draw() {
			if (!doc || !box.clientWidth)
				return;
			layout();
			const [x] = place_(lay.cols - 1), c = fit(canvas, x + lay.cw + 4, 8 + lay.rows * lay.ch);
			all.forEach((r, i) => paint(c, r, i));
			c.fillStyle = colour("soft");
			c.font = "11px sans-serif";
			c.textAlign = "right";
			const every = Math.max(1, Math.ceil(14 / lay.ch));
			for (let k = 0; k < lay.rows; k += every) {
				const first = k * lay.cols, host = hostOf(all.slice(first, first + lay.cols));
				c.fillText(host ? short(host) : String(doc.one_job ? all[first].rank : first), lay.margin - 7, 4 + k * lay.ch + Math.min(lay.ch, 14) - 2);
			}
			c.textAlign = "left";
			all.forEach((r, i) => r.differs && frame(c, i, colour("mark"), colour("panel"), 0));
			if (document.activeElement === box)
				frame(c, at, colour("ink"), colour("panel"), 1);
			tell();
		}

		function tell() {
			box.setAttribute("aria-rowcount", lay.rows);
			box.setAttribute("aria-colcount", lay.cols);
			row.setAttribute("aria-rowindex", Math.floor(at / lay.cols) + 1);
			cell.setAttribute("aria-colindex", at % lay.cols + 1);
			cell.textContent = words(all[at], doc).join(", ");
			box.setAttribute("aria-activedescendant", cell.id);
		}

		function mark(i) {
			at = Math.max(0, Math.min(all.length - 1, i));
			draw();
			const [, y] = place_(at);
			if (y < box.scrollTop || y + lay.ch > box.scrollTop + box.clientHeight)
				box.scrollTop = y - box.clientHeight / 2;
			said(all[at], words(all[at], doc));
		}

		function under(e) {
			const r = canvas.getBoundingClientRect(), x = e.clientX - r.left, y = e.clientY - r.top;
			const rowAt = Math.floor((y - 4) / lay.ch);
			for (let c = 0; c < lay.cols; c++) {
				const i = rowAt * lay.cols + c, [left] = place_(c);
				if (x >= left && x < left + lay.cw)
					return rowAt >= 0 && i < all.length ? i : -1;
			}
			return -1;
		}

		function keys(e) {
			const next = step => { // the next one that differs
				for (let k = 1, i = at; k <= all.length; k++) {
					i = (i + step + all.length) % all.length;
					if (all[i].differs)
						return i;
				}
				return at;
			};
			const page = Math.max(1, Math.floor(box.clientHeight / lay.ch)) * lay.cols;
			const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + lay.cols, ArrowUp: at - lay.cols, Home: 0, End: all.length - 1, PageDown: at + page, PageUp: at - page, n: next(1), p: next(-1) }[e.key];
			if (e.ctrlKey || e.metaKey || e.altKey || (to === undefined && e.key !== "Enter"))
				return;
			e.preventDefault();
			e.stopPropagation();
			if (e.key !== "Enter")
				mark(to < 0 || to >= all.length ? at : to);
			else if (!all[at].absent)
				open(all[at]);
		}

		box.addEventListener("keydown", keys);
		for (const name of ["focus", "blur"])
			box.addEventListener(name, () => { draw(); if (doc && name === "focus") said(all[at], words(all[at], doc)); });
		canvas.addEventListener("mousemove", e => {
			const i = doc ? under(e) : -1;
			canvas.style.cursor = i >= 0 && !all[i].absent ? "pointer" : "";
			if (i < 0)
				return hideTip();
			tip(words(all[i], doc), e.clientX, e.clientY);
		});
		canvas.addEventListener("mouseleave", hideTip);
		canvas.addEventListener("click", e => {
			const i = doc ? under(e) : -1;
			if (i >= 0 && !all[i].absent) {
				hideTip();
				mark(i);
				open(all[i]);
			}
		});
		new ResizeObserver(() => draw()).observe(box);

		return {
			show(d) {
				doc = d;
				all = cells(d);
				node = d.one_job ? perNode(all) : 0;
				at = Math.max(0, all.findIndex(r => r.differs));
				scale();
				draw();
				said(all[at], words(all[at], doc));
			},
			colour(name) { what = name; if (doc) { scale(); draw(); } },
			draw, mark,
			get cells() { return all; },
			get at() { return at; },
			get node() { return node; },
			place: i => { const [x, y] = place_(i); return [x + lay.cw / 2, y + lay.ch / 2]; }, // centre of a cell on the canvas
			get unknown() { return all.some(r => !r.absent && value(r) === null); },
			ends: () => [low, high].map(v => WHAT[what].text(v)),
		};
	}

	// The words above the grid, the scale, and the list of those that differ.
	function heading(doc) {
		const n = doc.recordings.filter(r => !r.worker).length, w = doc.recordings.length - n;
		const title = doc.one_job ? `${count(n)} ranks of ${doc.recordings.find(r => !r.worker)?.command || "one job"}` : `${count(n)} ${n === 1 ? "recording" : "recordings"}, not ranks of one job`;
		return [title, [w && `${count(w)} ${w === 1 ? "worker" : "workers"} not shown`, doc.one_job && doc.groups.length > 1 && `${count(doc.groups.length)} groups that allocate alike`,
			doc.step_match?.by === "optimizer" && `steps ${count(doc.step_match.first)} to ${count(doc.step_match.last)} compared`,
			doc.recordings_without_events && `${count(doc.recordings_without_events)} without memory events`, doc.missing?.length && `${count(doc.missing.length)} missing`].filter(Boolean).join(" · ")];
	}

	function legend(box, map) {
		const bar = el("i", { className: "scale" }), [low, high] = map.ends();
		const empty = [map.cells.some(r => r.absent) && "no recording", map.unknown && "not known"].filter(Boolean).join(", or ");
		bar.style.background = `linear-gradient(to right, ${Array.from({ length: 9 }, (_, i) => css(mix(i / 8))).join(", ")})`;
		box.replaceChildren(el("li", {}, el("span", { textContent: low }), bar, el("span", { textContent: high })), el("li", {}, el("i", { className: "odd" }), "differs from the others"),
			...(empty ? [el("li", {}, el("i", { className: "absent" }), empty)] : []), ...(map.node ? [el("li", { textContent: `a block is a node of ${map.node} ranks` })] : []));
	}

	// "ranks 1-3", "rank 2", "12 recordings"
	function together(list) {
		if (list.every(r => /^rank /.test(r.label)))
			return `${list.length > 1 ? "ranks" : "rank"} ${ranges(list.map(r => r.rank))}`;
		return list.length > 1 ? `${count(list.length)} recordings` : named(list[0]);
	}

	// "Growth in ranks 1-3; most in rank 2: +32.0 KiB/step at train.py:7", "No growth.", or the sentence of the first rank whose
	// growth is not known: "In ranks 0-3: growth not known in 5 steps: record 100".
	function growing(all) {
		const known = all.filter(r => !r.absent), most = known.filter(grows).sort((a, b) => grows(b).bytes_per_step - grows(a).bytes_per_step);
		if (most.length)
			return `Growth in ${together(most)}${most.length > 1 ? `; most in ${named(most[0])}` : ""}: ${grows(most[0]).text}`;
		if (known.every(r => growth(r) === 0))
			return "No growth.";
		const unknown = r => r.growth.find(g => g.verdict === "unknown"), unsure = known.filter(unknown);
		return unsure.length ? `In ${together(unsure)}: ${unknown(unsure[0]).text}` : "";
	}

	// What grows, and the list of those that differ. open(recording): one was chosen.
	function differ(box, map, open) {
		const grown = growing(map.cells);
		const all = map.cells.map((r, i) => [r, i]).filter(([r]) => r.differs);
		const item = ([r, i]) => el("li", {}, el("a", { href: "#", textContent: named(r), onfocus: () => map.mark(i), onclick: e => { e.preventDefault(); open(r); } }), ...some(r.says).map(w => el("span", { textContent: w })));
		box.replaceChildren(...(grown ? [el("li", { className: "growing", textContent: grown })] : []), ...all.slice(0, LISTED).map(item), ...(all.length ? [] : [el("li", { className: "quiet", textContent: "No rank differs from the others by more than the report’s limits." })]),
			...(all.length > LISTED ? [el("li", { className: "quiet", textContent: Words.more(all.length - LISTED, "rank") })] : []));
	}

	// A table of all cells, for those who do not see the grid.
	const table = (map, doc) => ({
		columns: [doc.one_job ? "Rank" : "Recording", "Host", `Memory ${moment(doc)}`, "Growth per step", "Time of a step", "Differs"],
		rows: map.cells.map(r => [r.label, r.host ?? "–", ...(r.absent ? ["–", "–", "–", r.says[0] ?? "no recording"] :
			[bytes(r.allocated), growth(r) === null ? "not known" : WHAT.growth.text(growth(r)), r.step_time ? duration(r.step_time) : "not known", some(r.says).join("; ") || "no"])]),
	});

	return { make, heading, legend, differ, table, WHAT };
})();
