// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Lifetimes: the blocks of each module allocated or freed in the window, or in the step at the moment. A few blocks
// are shown as bars, many as a curve of their bytes.
"use strict";
(() => {
	const { state, head, el, colour } = Page;
	const { bytes, count, seconds } = Words;
	const LANE = 30, GONE_NEVER = 2 ** 32 - 1, TOP = 22, BARS = 5;
	let box = null, scroll, canvas, says, twin, lanes = [], range = null, depth = 0, drawn = [], at = -1, pick;

	// The range shown: the window, otherwise the step at the moment, otherwise the timeline's range.
	function rangeOf() {
		const step = Page.stepAt(state.time);
		if (state.from !== null)
			return { a: state.from, b: state.moment, what: "the window" };
		if (step)
			return { a: Page.data.at(state.device, step[1]) - 1, b: Page.data.at(state.device, step[2]), what: Page.stepWords(step[0]) };
		return { a: Page.data.at(state.device, state.view[0]), b: Page.data.at(state.device, state.view[1]), what: "the visible time" };
	}

	const cut = (name, d) => d ? name.split(".").slice(0, d).join(".") : name;

	// The largest module depth with at most 40 lanes.
	function autoDepth(names) {
		let best = 1;
		for (let d = 1; d <= 8; d++)
			if (new Set([...names].map(n => cut(n, d))).size <= 40)
				best = d;
		return best;
	}

	function collect() {
		const data = Page.data, b = data.blocks(state.device), rows = Page.rows, pass = Page.maskOf();
		const { a: m0, b: m1 } = range, found = [], spans = new Map();
		for (let i = 0; i < b.n; i++) {
			const born = b.born[i] === GONE_NEVER ? -1 : b.born[i], gone = b.gone[i];
			if (born > m1 || gone <= m0 || (pass && !pass[b.row[i]]))
				continue;
			if (born <= m0 && gone > m1)
				spans.set(b.row[i], (spans.get(b.row[i]) ?? 0) + b.size[i]);
			else
				found.push(i);
		}
		const d = depth || autoDepth(new Set(found.map(i => rows[b.row[i]].module ?? "")));
		const by = new Map();
		const lane = name => {
			if (!by.has(name))
				by.set(name, { name, blocks: [], through: 0, bytes: 0, first: Infinity, kept: 0, freed: 0 });
			return by.get(name);
		};
		for (const i of found) {
			const l = lane(cut(rows[b.row[i]].module ?? "", d)), born = b.born[i];
			l.blocks.push(i);
			// Blocks of the previous step do not affect the order.
			if (born > m0) {
				l.first = Math.min(l.first, born);
				l.bytes += b.size[i];
			}
			if (b.gone[i] > m1)
				l.kept += b.size[i];
			else
				l.freed += b.size[i];
		}
		for (const [row, size] of spans) {
			const l = by.get(cut(rows[row].module ?? "", d));
			if (l)
				l.through += size;
		}
		lanes = [...by.values()].sort((x, y) => x.first - y.first || (x.name < y.name ? -1 : 1));
		for (const l of lanes)
			pack(l, b);
	}

	// Packs bars into few lines without overlap. If there are too many lines, a curve is drawn.
	function pack(l, b) {
		l.blocks.sort((x, y) => b.born[x] - b.born[y] || b.size[y] - b.size[x]);
		const ends = [];
		l.line = new Map();
		l.lines = 0;
		for (const i of l.blocks) {
			const k = ends.findIndex(e => e <= b.born[i]), line = k < 0 ? ends.length : k;
			if (line >= BARS) {
				l.lines = 0;
				curve(l, b);
				return;
			}
			ends[line] = b.gone[i];
			l.line.set(i, line);
			l.lines = Math.max(l.lines, line + 1);
		}
	}

	function curve(l, b) {
		const steps = [];
		for (const i of l.blocks) {
			const c = Page.rows[b.row[i]].category;
			steps.push([Math.max(b.born[i], range.a), b.size[i], c]);
			if (b.gone[i] <= range.b)
				steps.push([b.gone[i], -b.size[i], c]);
		}
		steps.sort((x, y) => x[0] - y[0]);
		l.curve = steps;
	}

	// ---- drawing

	const left = () => Math.min(180, scroll.clientWidth * 0.32);

	function scale() {
		const x0 = left(), w = scroll.clientWidth - x0 - 8;
		const t0 = Page.timeOf(range.a), t1 = Math.max(Page.timeOf(range.b), t0 + 1e-9);
		return { x: m => x0 + Math.max(0, Math.min(1, (Page.timeOf(m) - t0) / (t1 - t0))) * w, xt: t => x0 + (t - t0) / (t1 - t0) * w, x0, w, t0, t1 };
	}

	function draw() {
		if (!box || !range)
			return;
		const width = scroll.clientWidth, height = scroll.clientHeight, s = scale(), b = Page.data.blocks(state.device);
		scroll.firstChild.style.height = Math.max(height, TOP + lanes.length * LANE) + "px";
		const c = Page.fit(canvas, width, height), top = scroll.scrollTop;
		drawn = [];
		background(c, s, height);
		c.save();
		c.beginPath();
		c.rect(0, TOP, width, height - TOP);
		c.clip();
		const first = Math.max(0, Math.floor((top - TOP) / LANE)), last = Math.min(lanes.length, Math.ceil((top + height - TOP) / LANE) + 1);
		for (let k = first; k < last; k++)
			lane(c, s, b, lanes[k], k, TOP + k * LANE - top);
		c.restore();
		const now = s.xt(state.time);
		if (state.time >= s.t0 && state.time <= s.t1) {
			c.fillStyle = colour("accent");
			c.fillRect(now - 0.5, 0, 1.5, height);
		}
	}

	function background(c, s, height) {
		c.font = "10.5px " + colour("font");
		c.textBaseline = "middle";
		let end = -Infinity;
		for (const [a, b, phase] of head.phases ?? []) {
			if (b < s.t0 || a > s.t1 || phase === "other")
				continue;
			const x = Math.max(s.x0, s.xt(a)), w = Math.max(1, Math.min(s.x0 + s.w, s.xt(b)) - x);
			c.globalAlpha = 0.13;
			c.fillStyle = Page.phaseColour(phase);
			c.fillRect(x, 0, w, height);
			c.globalAlpha = 1;
			c.fillRect(x, TOP - 4, w, 3);
			const room = c.measureText(Words.phase(phase)).width;
			if (w > room + 6 && x > end) {
				c.fillStyle = colour("soft");
				c.fillText(Words.phase(phase), x + 3, TOP / 2 - 2);
				end = x + room + 6;
			}
		}
	}

	function lane(c, s, b, l, k, y) {
		c.strokeStyle = colour("grid");
		c.lineWidth = 1;
		c.beginPath();
		c.moveTo(0, y + LANE - 0.5);
		c.lineTo(s.x0 + s.w, y + LANE - 0.5);
		c.stroke();
		if (k === at && document.activeElement === canvas) {
			c.strokeStyle = colour("accent");
			c.strokeRect(1, y + 1, s.x0 + s.w + 5, LANE - 3);
		}
		c.fillStyle = colour("ink");
		c.font = "11.5px " + colour("font");
		c.fillText(endOf(c, l.name || "(no module)", s.x0 - 12), 4, y + 10);
		c.fillStyle = colour("soft");
		c.font = "10.5px " + colour("font");
		c.fillText(Page.clipText(c, `${bytes(l.bytes)}${l.through ? " + " + bytes(l.through) + " held" : ""}`, s.x0 - 12), 4, y + 22);
		if (l.lines)
			bars(c, s, b, l, y);
		else
			area(c, s, l, y);
	}

	// Shortens a module name from the left, because its end tells modules apart.
	function endOf(c, text, room) {
		if (c.measureText(text).width <= room)
			return text;
		let i = 1;
		while (i < text.length && c.measureText("…" + text.slice(i)).width > room)
			i++;
		return "…" + text.slice(i);
	}

	function bars(c, s, b, l, y) {
		const h = Math.min(9, (LANE - 5) / l.lines);
		for (const i of l.blocks) {
			const x = s.x(b.born[i]), x2 = b.gone[i] === GONE_NEVER ? s.x0 + s.w : s.x(b.gone[i]), by = y + 2 + l.line.get(i) * h;
			const o = { x, y: by, w: Math.max(1.5, x2 - x), h: Math.max(2, h - 1), i, l };
			c.fillStyle = Page.categoryColour(Page.rows[b.row[i]].category);
			c.fillRect(o.x, o.y, o.w, o.h);
			drawn.push(o);
		}
	}

	function area(c, s, l, y) {
		const cats = [...new Set(l.curve.map(e => e[2]))], now = Object.fromEntries(cats.map(k => [k, 0]));
		let most = 1, sum = 0;
		for (const e of l.curve)
			most = Math.max(most, sum += e[1]);
		l.most = most;
		const h = LANE - 4, y1 = y + LANE - 2;
		let x = s.x(range.a);
		const strip = to => {
			let base = y1;
			for (const k of cats) {
				const dy = now[k] / most * h;
				c.fillStyle = Page.categoryColour(k);
				c.fillRect(x, base - dy, Math.max(0.5, to - x), dy);
				base -= dy;
			}
			x = to;
		};
		for (const [m, size, k] of l.curve) {
			const to = s.x(m);
			if (to - x >= 0.5)
				strip(to);
			now[k] += size;
		}
		strip(s.x(range.b));
		drawn.push({ x: s.x0, y, w: s.w, h: LANE, l });
	}

	// ---- pointer, keys

	function lines(o) {
		const l = o.l, b = Page.data.blocks(state.device);
		if (o.i === undefined)
			return [l.name || "(no module)", `${Words.blocks(l.blocks.length)}, ${bytes(l.bytes)} allocated`, `at most ${bytes(l.most ?? 0)} at once`, `${bytes(l.freed)} freed, ${bytes(l.kept)} kept`];
		const r = Page.rows[b.row[o.i]], born = b.born[o.i], gone = b.gone[o.i];
		return [`${bytes(b.size[o.i])} ${Words.role(r.category)}`, Page.placeOf(r), r.module,
			(born < 0 || born === GONE_NEVER ? "allocated before the first event" : "allocated at " + at_(born)), gone === GONE_NEVER ? "live at the end" : "freed at " + at_(gone)];
	}
	const at_ = m => `${seconds(Page.timeOf(m), (Page.timeOf(range.b) - Page.timeOf(range.a)) / 100)}, ${Words.phase(phaseAt(Page.timeOf(m)))}`;
	const phaseAt = t => (head.phases ?? []).find(p => p[0] <= t && t <= p[1])?.[2] ?? "other";

	function events() {
		canvas.addEventListener("pointermove", e => {
			const r = canvas.getBoundingClientRect(), x = e.clientX - r.left, y = e.clientY - r.top;
			const o = drawn.findLast(d => x >= d.x - 1 && x <= d.x + d.w + 1 && y >= d.y && y <= d.y + d.h + 1);
			if (o && y > TOP)
				Page.tip(lines(o), e.clientX, e.clientY);
			else
				Page.hideTip();
		});
		canvas.addEventListener("pointerleave", Page.hideTip);
		const use = k => lanes[k] && Page.find([Page.filter.term("module", lanes[k].name)]);
		canvas.addEventListener("click", e => {
			const r = canvas.getBoundingClientRect(), s = scale();
			if (e.clientX - r.left < s.x0)
				use(Math.floor((e.clientY - r.top + scroll.scrollTop - TOP) / LANE));
			else
				Page.chooseTime(s.t0 + (e.clientX - r.left - s.x0) / s.w * (s.t1 - s.t0));
		});
		canvas.addEventListener("keydown", e => {
			const by = { ArrowDown: 1, ArrowUp: -1 }[e.key];
			if (by) {
				at = Math.max(0, Math.min(lanes.length - 1, at + by));
				const y = TOP + at * LANE;
				if (y < scroll.scrollTop + TOP)
					scroll.scrollTop = y - TOP;
				else if (y + LANE > scroll.scrollTop + scroll.clientHeight)
					scroll.scrollTop = y + LANE - scroll.clientHeight;
				draw();
				says.textContent = lines({ l: lanes[at] }).join(" · ");
			} else if (e.key === "Enter") {
				use(at);
			} else {
				return;
			}
			e.preventDefault();
			e.stopPropagation();
		});
		canvas.addEventListener("focus", draw);
		canvas.addEventListener("blur", draw);
		scroll.addEventListener("scroll", draw, { passive: true });
	}

	function renew() {
		if (!state.ready || !box)
			return;
		range = rangeOf();
		collect();
		const made = lanes.reduce((a, l) => a + l.bytes, 0), freed = lanes.reduce((a, l) => a + l.freed, 0), n = lanes.reduce((a, l) => a + l.blocks.length, 0);
		says.textContent = range.b <= range.a ? "Select a window, or a moment in a step." :
			`${range.what[0].toUpperCase() + range.what.slice(1)}, ${seconds(Page.timeOf(range.b) - Page.timeOf(range.a))}: ${Words.blocks(n) || "no blocks"}, ${bytes(made)} allocated, ${bytes(freed)} freed`;
		draw();
		twin();
	}

	function open(where) {
		box = where;
		canvas = el("canvas", { tabIndex: 0, role: "img", "aria-label": "Lifetimes by module", className: "stick" });
		scroll = el("div", { className: "scroll lanes" }, el("div", { className: "space" }), canvas);
		says = el("output", { className: "quiet says" });
		pick = el("select", { onchange: e => { depth = Number(e.target.value); renew(); } },
			...[["0", "automatic"], ["1", "1 part"], ["2", "2 parts"], ["3", "3 parts"], ["99", "all parts"]].map(([v, t]) => el("option", { value: v, textContent: t, selected: Number(v) === depth })));
		const details = el("details", { className: "twin" }, el("summary", { textContent: "As a table" }), el("div"));
		twin = Page.twin(details, () => ({
			columns: ["module", "blocks", "allocated", "freed", "kept at the end", "held throughout"],
			rows: lanes.slice(0, 300).map(l => [l.name || "(no module)", count(l.blocks.length), bytes(l.bytes), bytes(l.freed), bytes(l.kept), bytes(l.through)]),
		}));
		box.replaceChildren(el("div", { className: "bar thin" }, el("label", { className: "pick" }, el("span", { className: "quiet", textContent: "Module names" }), " ", pick), says), scroll, details);
		events();
		new ResizeObserver(draw).observe(scroll);
		renew();
	}

	Page.views.lives = { title: "Lifetimes", open, renew, slow: true, zooms: true, close: () => { box = null; }, lanes: () => lanes };
})();
