// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The flame graph of the selection, on a canvas. The tree of all stacks is built once; a brush changes only the
// figures.
"use strict";
(() => {
	const { state, el, colour } = Page;
	const { bytes, count, percent, NOTES } = Words;
	const ROW = 20, THIN = 0.6;
	const options = { hideTorch: true, leafFirst: false, icicle: true, byCount: false };
	let tree = null, values = null, zoom = 0, at = 0, drawn = [], query = "", hits = null, box = null, scroll, canvas, says, search, twin, reset;

	// ---- tree: parents precede their children

	function stackOf(id) {
		let s = Array.from(Page.stack(id));
		if (options.hideTorch) {
			const kept = s.filter(f => Page.frames[f].kind !== "torch");
			// A stack with only PyTorch frames keeps its innermost frame.
			s = kept.length ? kept : s.slice(-1);
		}
		return options.leafFirst ? s.reverse() : s;
	}

	function build() {
		const parent = [-1], frame = [-1], depth = [0], kids = new Map(), leaf = new Map();
		const leaves = new Int32Array(Page.rows.length);
		Page.rows.forEach((r, i) => {
			let n = leaf.get(r.stack);
			if (n === undefined) {
				n = 0;
				for (const f of stackOf(r.stack)) {
					const key = n * 0x200000 + f;
					let child = kids.get(key);
					if (child === undefined) {
						child = parent.length;
						kids.set(key, child);
						parent.push(n);
						frame.push(f);
						depth.push(depth[n] + 1);
					}
					n = child;
				}
				leaf.set(r.stack, n);
			}
			leaves[i] = n;
		});
		const n = parent.length;
		// Children of node i are list[first[i]] to list[first[i + 1] - 1].
		const first = new Int32Array(n + 1), list = new Int32Array(Math.max(0, n - 1));
		for (let i = 1; i < n; i++)
			first[parent[i] + 1]++;
		for (let i = 0; i < n; i++)
			first[i + 1] += first[i];
		const next = first.slice();
		for (let i = 1; i < n; i++)
			list[next[parent[i]]++] = i;
		tree = { parent: Int32Array.from(parent), frame: Int32Array.from(frame), depth: Int32Array.from(depth), first, list, leaves, n };
	}

	function weigh() {
		const f = Page.figures(), by = options.byCount ? f.count : f.bytes;
		values = new Float64Array(tree.n);
		let less = 0;
		for (let i = 0; i < by.length; i++)
			if (by[i] > 0)
				values[tree.leaves[i]] += by[i];
			else
				less -= by[i];
		for (let i = tree.n - 1; i > 0; i--)
			values[tree.parent[i]] += values[i];
		values.less = less;
	}

	const childrenOf = n => Array.from(tree.list.subarray(tree.first[n], tree.first[n + 1])).filter(c => values[c] > 0)
		.sort((a, b) => values[b] - values[a] || tree.frame[a] - tree.frame[b]);
	const name = n => n === 0 ? "All of " + Page.device().name : Page.frames[tree.frame[n]].name;
	const inside = (n, up) => {
		while (tree.depth[n] > tree.depth[up])
			n = tree.parent[n];
		return n === up;
	};
	const amount = v => options.byCount ? Words.blocks(v) : bytes(v);

	// Finds the node with the same path in another tree.
	function again(path) {
		let n = 0;
		for (const f of path) {
			const c = Array.from(tree.list.subarray(tree.first[n], tree.first[n + 1])).find(k => tree.frame[k] === f);
			if (c === undefined)
				break;
			n = c;
		}
		return n;
	}
	function path(n) {
		const out = [];
		for (; n > 0; n = tree.parent[n])
			out.unshift(tree.frame[n]);
		return out;
	}

	// ---- search

	function find() {
		const q = query.toLowerCase();
		hits = q ? Uint8Array.from(Page.frames, f => (f.name + "\n" + f.file + (f.line ? ":" + f.line : "")).toLowerCase().includes(q) ? 1 : 0) : null;
	}

	// Bytes of stacks in the zoomed frame that contain a match.
	function matched() {
		let sum = 0;
		const todo = [[zoom, false]];
		for (let up = zoom; up > 0; up = tree.parent[up])
			if (hits[tree.frame[up]])
				return values[zoom];
		while (todo.length) {
			const [n] = todo.pop();
			if (n && hits[tree.frame[n]]) {
				sum += values[n];
				continue;
			}
			for (let i = tree.first[n]; i < tree.first[n + 1]; i++)
				if (values[tree.list[i]] > 0)
					todo.push([tree.list[i]]);
		}
		return sum;
	}

	// ---- drawing

	function place() {
		const width = scroll.clientWidth, out = [];
		for (let n = zoom; n > 0; n = tree.parent[n])
			out.push({ n: tree.parent[n], x: 0, w: width, above: true });
		out.reverse();
		const scale = values[zoom] ? width / values[zoom] : 0, todo = [[zoom, 0]];
		let depths = tree.depth[zoom] + 1;
		while (todo.length) {
			const [n, x0] = todo.pop(), kids = childrenOf(n);
			out.push({ n, x: x0, w: values[n] * scale });
			depths = Math.max(depths, tree.depth[n] + 1);
			let x = x0, i = 0;
			for (; i < kids.length && values[kids[i]] * scale >= THIN; i++) {
				todo.push([kids[i], x]);
				x += values[kids[i]] * scale;
			}
			let rest = 0;
			for (let k = i; k < kids.length; k++)
				rest += values[kids[k]];
			if (rest * scale >= 1) {
				out.push({ n, x, w: rest * scale, more: kids.length - i, rest });
				depths = Math.max(depths, tree.depth[n] + 2);
			}
		}
		return { out, depths };
	}

	function draw() {
		if (!box || !tree)
			return;
		const { out, depths } = place();
		const width = scroll.clientWidth, height = Math.max(depths * ROW, ROW);
		const c = Page.fit(canvas, width, height);
		c.textBaseline = "middle";
		for (const o of out) {
			const depth = tree.depth[o.n] + (o.more ? 1 : 0);
			o.y = (options.icicle ? depth : depths - 1 - depth) * ROW;
			paint(c, o);
		}
		drawn = out;
		canvas.setAttribute("aria-label", `Flame graph: ${amount(values[0])}, ${count(out.length)} frames drawn. ${says.textContent}`);
		reset.disabled = zoom === 0;
		tell();
		twin();
	}

	function paint(c, o) {
		const f = o.n ? Page.frames[tree.frame[o.n]] : null, hit = f && !o.more && hits && hits[tree.frame[o.n]];
		const w = Math.max(THIN, o.w - (o.w > 3 ? 1 : 0));
		c.globalAlpha = o.above ? 0.6 : hits && !hit ? 0.35 : 1;
		c.fillStyle = o.more ? colour("f-more") : colour("f-" + (f ? f.kind : "root"));
		c.fillRect(o.x, o.y, w, ROW - 1);
		c.globalAlpha = 1;
		if (hit) {
			c.strokeStyle = colour("mark");
			c.lineWidth = 1.5;
			c.strokeRect(o.x + 0.75, o.y + 0.75, Math.max(0.5, w - 1.5), ROW - 2.5);
		}
		if (o.n === at && !o.more && document.activeElement === canvas) {
			c.strokeStyle = colour("ink");
			c.lineWidth = 2;
			c.strokeRect(o.x + 1, o.y + 1, Math.max(1, w - 2), ROW - 3);
		}
		if (o.more || w < 26)
			return;
		c.fillStyle = colour("f-ink");
		c.globalAlpha = hits && !hit ? 0.55 : 1;
		c.font = (f && f.kind === "user" ? "600 " : "") + "11.5px " + colour("font");
		const room = w - 8, right = w > 200 ? amount(values[o.n]) : "";
		const side = right ? c.measureText(right).width + 10 : 0;
		const label = Page.clipText(c, short(o.n), room - side);
		c.fillText(label, o.x + 4, o.y + ROW / 2);
		let used = c.measureText(label).width;
		c.globalAlpha *= 0.68;
		c.font = "11px " + colour("font");
		if (f && f.file && room - side - used > 60) {
			const where = f.file.slice(f.file.lastIndexOf("/") + 1) + (f.line ? ":" + f.line : "");
			c.fillText(Page.clipText(c, where, room - side - used - 8), o.x + 12 + used, o.y + ROW / 2);
		}
		if (right)
			c.fillText(right, o.x + w - c.measureText(right).width - 4, o.y + ROW / 2);
		c.globalAlpha = 1;
	}

	// A submodule is shown without its parent's name: .attn in blocks.0, not blocks.0.attn.
	function short(n) {
		const all = name(n);
		if (!n || Page.frames[tree.frame[n]].kind !== "module" || options.leafFirst)
			return all;
		for (let up = tree.parent[n]; up > 0; up = tree.parent[up])
			if (Page.frames[tree.frame[up]].kind === "module") {
				const outer = name(up).split(" (")[0] + ".";
				return all.startsWith(outer) ? all.slice(outer.length - 1) : all;
			}
		return all;
	}

	function lines(o) {
		if (o.more)
			return [`${count(o.more)} frames too narrow to draw`, `${amount(o.rest)} · zoom in to see them`];
		const f = o.n ? Page.frames[tree.frame[o.n]] : null;
		const share = [amount(values[o.n]), percent(values[o.n], values[0]) + " of all"];
		if (zoom && inside(o.n, zoom))
			share.push(percent(values[o.n], values[zoom]) + " of the zoomed frame");
		return [name(o.n), share.join(" · "), f ? f.file ? f.file + (f.line ? ":" + f.line : "") : NOTES[f.name] ?? "" : ""];
	}

	function tell() {
		if (!values[0]) {
			says.textContent = state.from !== null && state.measure === "grew" ? "Nothing grew in this window." : "Nothing to show here.";
			return;
		}
		const parts = lines({ n: at }).slice(0, 2);
		let text = parts.join(" · ");
		if (hits) {
			const m = matched();
			text = m ? `${percent(m, values[zoom])} matched · ${amount(m)}` : "no match";
		} else if (values.less > 0) {
			text += ` · not in the picture: ${amount(values.less)} that went away`;
		}
		says.textContent = text;
	}

	// ---- pointer and keyboard

	const hitAt = e => {
		const r = canvas.getBoundingClientRect(), x = e.clientX - r.left, y = e.clientY - r.top;
		return drawn.findLast(o => y >= o.y && y < o.y + ROW && x >= o.x && x < o.x + Math.max(1, o.w));
	};

	function zoomTo(n) {
		Page.hideTip();
		zoom = at = n;
		draw();
		if (!options.icicle)
			scroll.scrollTop = scroll.scrollHeight;
	}

	function step(key) {
		const here = drawn.find(o => o.n === at && !o.more) ?? drawn.find(o => o.n === zoom);
		const inward = options.icicle ? "ArrowDown" : "ArrowUp", outward = options.icicle ? "ArrowUp" : "ArrowDown";
		let next;
		if (key === inward)
			next = here.above ? drawn[drawn.indexOf(here) + 1] : drawn.find(o => !o.more && o.n === childrenOf(here.n)[0]);
		else if (key === outward)
			next = drawn.find(o => !o.more && o.n === tree.parent[here.n]);
		else if (key === "Home")
			next = drawn[0];
		else {
			const row = drawn.filter(o => !o.more && tree.depth[o.n] === tree.depth[here.n]).sort((a, b) => a.x - b.x);
			next = row[row.indexOf(here) + (key === "ArrowRight" ? 1 : -1)];
		}
		if (!next)
			return;
		at = next.n;
		draw();
		if (next.y < scroll.scrollTop)
			scroll.scrollTop = next.y;
		else if (next.y + ROW > scroll.scrollTop + scroll.clientHeight)
			scroll.scrollTop = next.y + ROW - scroll.clientHeight;
	}

	function filterTo(n) {
		const f = n ? Page.frames[tree.frame[n]] : null;
		if (!f)
			return;
		if (f.kind === "module")
			Page.find([Page.filter.term("stack", f.name)]);
		else if (f.file)
			Page.find([Page.filter.term("stack", f.file + ":" + f.line)]);
	}

	function events() {
		canvas.addEventListener("click", e => {
			const o = hitAt(e);
			canvas.focus({ preventScroll: true });
			if (o)
				zoomTo(o.n);
		});
		canvas.addEventListener("pointermove", e => {
			const o = e.pointerType === "mouse" ? hitAt(e) : null;
			canvas.style.cursor = o ? "pointer" : "";
			if (o)
				Page.tip(lines(o), e.clientX, e.clientY);
			else
				Page.hideTip();
		});
		canvas.addEventListener("pointerleave", Page.hideTip);
		canvas.addEventListener("focus", draw);
		canvas.addEventListener("blur", draw);
		canvas.addEventListener("keydown", e => {
			if (e.ctrlKey || e.metaKey || e.altKey || e.shiftKey)
				return;
			if (["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home"].includes(e.key))
				step(e.key);
			else if (e.key === "Enter" || e.key === " ")
				zoomTo(at);
			else if (e.key === "f")
				filterTo(at);
			else if (e.key === "Escape" && zoom)
				zoomTo(tree.parent[zoom] > 0 && !hits ? tree.parent[zoom] : 0);
			else
				return;
			e.preventDefault();
			e.stopPropagation();
		});
		search.addEventListener("input", () => {
			query = search.value.trim();
			find();
			draw();
		});
		search.addEventListener("keydown", e => {
			if (e.key !== "Escape")
				return;
			e.stopPropagation();
			e.preventDefault();
			if (!search.value)
				canvas.focus();
			search.value = query = "";
			find();
			draw();
		});
	}

	// ---- the view

	function renew(changed) {
		if (!state.ready || !box)
			return;
		if (!tree)
			build();
		if (changed?.has("device"))
			zoom = at = 0;
		weigh();
		if (!values[zoom])
			zoom = 0;
		if (!values[at])
			at = zoom;
		draw();
	}

	function option(key, text, title) {
		const box_ = el("input", { type: "checkbox", checked: options[key], onchange: e => {
			options[key] = e.target.checked;
			if (key === "hideTorch" || key === "leafFirst") {
				const z = path(zoom), a = path(at);
				build();
				weigh();
				zoom = key === "leafFirst" ? 0 : again(z);
				at = key === "leafFirst" ? 0 : again(a);
			}
			renew();
			if (key === "icicle" && !options.icicle)
				scroll.scrollTop = scroll.scrollHeight;
		} });
		return el("label", { className: "check", title }, box_, text);
	}

	function open(where) {
		box = where;
		canvas = el("canvas", { tabIndex: 0, role: "img", className: "flame" });
		scroll = el("div", { className: "scroll" }, canvas);
		says = el("output", { className: "quiet says" });
		search = el("input", { type: "search", placeholder: "Search frames", "aria-label": "Search frames", autocomplete: "off", spellcheck: false, value: query, id: "flame-search" });
		reset = el("button", { type: "button", textContent: "Reset zoom", disabled: true, onclick: () => zoomTo(0) });
		const details = el("details", { className: "twin" }, el("summary", { textContent: "As a table" }), el("div"));
		twin = Page.twin(details, () => ({
			columns: ["frame", options.byCount ? "blocks" : "bytes", "of all", "file"],
			rows: drawn.filter(o => !o.more && !o.above).sort((a, b) => tree.depth[a.n] - tree.depth[b.n] || values[b.n] - values[a.n]).slice(0, 200)
				.map(o => ["\u00a0".repeat(2 * tree.depth[o.n]) + name(o.n), count(values[o.n]), percent(values[o.n], values[0]), lines(o)[2]]),
		}));
		box.replaceChildren(el("div", { className: "bar thin" }, search, option("hideTorch", "Hide torch", "Frames inside PyTorch are left out"),
			option("leafFirst", "Inverted", "The allocating line first"), option("icicle", "Root on top"),
			option("byCount", "Blocks", "By number of blocks, not bytes"), reset), says, scroll, details);
		events();
		new ResizeObserver(draw).observe(scroll);
		if (query && state.ready)
			find();
		renew();
	}

	Page.views.flame = { title: "Flame graph", open, renew, close: () => { box = null; },
		sum: () => values?.[0], drawn: () => drawn.map(o => ({ ...o, name: o.more ? "" : name(o.n), value: o.more ? o.rest : values[o.n] })) };
})();
