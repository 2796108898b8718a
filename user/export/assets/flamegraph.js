// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Draws the data written by flamegraph.c. Names come from a traced program: use them only as textContent.
"use strict";
(() => {
	const { bytes, count, blocks, percent, seconds, command, NOTES } = Words;
	const data = JSON.parse(document.getElementById("data").textContent);
	const $ = id => document.getElementById(id);
	const graph = $("graph");
	if (data.diff)
		Change.expand(data);

	// Indexed by enum frame_kind.
	const KINDS = [
		["user", "Your code"],
		["module", "nn.Module call"],
		["torch", "PyTorch"],
		["installed", "Other libraries"],
		["stdlib", "Standard library"],
		["note", "No Python stack"],
	];
	const MODULE = 1, TORCH = 2;
	const ROW = parseInt(getComputedStyle(document.documentElement).getPropertyValue("--row"), 10);
	const THIN = 0.7; // px: narrower frames are combined

	// ---- frames

	const frames = [];
	for (let i = 0; i < data.frames.length; i += 4) {
		const file = data.frames[i + 1] < 0 ? "" : data.strings[data.frames[i + 1]];
		const line = data.frames[i + 2];
		frames.push({
			name: data.strings[data.frames[i]],
			file,
			line,
			kind: data.frames[i + 3],
			where: file && file.slice(file.lastIndexOf("/") + 1) + (line ? ":" + line : ""),
			was: data.was?.[i / 4] ?? 0, // with two recordings: the line in the old one, if different
			text: "", // searchable text, made on first use
		});
	}

	// With layer numbers merged, blocks.0.attn and blocks.1.attn are one frame, blocks.*.attn.
	const merged = frames.map((f, i) => i);
	const starred = new Map();
	frames.slice().forEach((f, i) => {
		const name = f.kind === MODULE ? f.name.replace(/(^|\.)\d+(?=[. ]|$)/g, "$1*") : f.name;
		if (name === f.name)
			return;
		if (!starred.has(name))
			starred.set(name, frames.push({ ...f, name }) - 1);
		merged[i] = starred.get(name);
	});

	// ---- state

	const main = Math.max(0, data.devices.findIndex(d => d.main));
	const OPTIONS = [["hide-torch", "hideTorch"], ["merge", "merge"], ["leaf-first", "leafFirst"], ["icicle", "icicle"]];
	const state = { device: main, view: 0, hideTorch: true, merge: false, leafFirst: false, icicle: true, query: "" };
	let root; // root of the current tree
	let zoom; // node shown in full width
	let at; // node with the keyboard focus
	let drawn = []; // { node, el } of the drawn frames; el.dataset.i is the index
	let depths = 0;

	const device = () => data.devices[state.device];
	const view = () => device().views[state.view];
	const total = v => v.total ?? (v.total = v.bytes.reduce((a, b) => a + b, 0));

	// ---- tree: the stacks of a view under the current options

	function stackOf(node) {
		const out = [];
		for (; node >= 0; node = data.nodes.parent[node]) {
			const f = data.nodes.frame[node];
			out.push(state.merge ? merged[f] : f);
		}
		if (state.hideTorch) {
			const kept = out.filter(f => frames[f].kind !== TORCH);
			// A stack with only PyTorch frames keeps its innermost frame.
			return kept.length ? kept : out.slice(0, 1);
		}
		return out;
	}

	function makeNode(parent, frame) {
		return { parent, frame, bytes: 0, old: 0, new: 0, count: 0, known: true, depth: parent ? parent.depth + 1 : 0, children: new Map(), sorted: null, hit: false };
	}

	function build() {
		const v = view();
		const cache = new Map();
		root = makeNode(null, -1);
		for (let i = 0; i < v.node.length; i++) {
			let stack = cache.get(v.node[i]);
			if (!stack) {
				stack = stackOf(v.node[i]); // innermost first
				if (!state.leafFirst)
					stack.reverse();
				cache.set(v.node[i], stack);
			}
			let n = root;
			add(n, v, i);
			for (const f of stack) {
				let child = n.children.get(f);
				if (!child)
					n.children.set(f, child = makeNode(n, f));
				n = child;
				add(n, v, i);
			}
		}
		search();
	}

	function add(n, v, i) {
		n.bytes += v.bytes[i];
		n.count += v.count[i];
		if (v.old) {
			n.old += v.old[i];
			n.new += v.new[i];
		}
		if (!v.count[i] && v.bytes[i])
			n.known = false; // before attach: the number of blocks is not known
	}

	function childrenOf(n) {
		return n.sorted ?? (n.sorted = [...n.children.values()].sort((a, b) => b.bytes - a.bytes || a.frame - b.frame));
	}

	// Finds the node with the same path in another tree.
	function findAgain(n) {
		const path = [];
		for (; n && n.parent; n = n.parent)
			path.push(n.frame);
		let found = root;
		for (const f of path.reverse()) {
			const child = found.children.get(f);
			if (!child)
				break;
			found = child;
		}
		return found;
	}

	// ---- search

	function matches(f) {
		f.text ||= (f.name + "\n" + f.file + (f.line ? ":" + f.line : "")).toLowerCase();
		return f.text.includes(state.query);
	}

	function search() {
		const hits = state.query ? frames.map(matches) : null;
		const stack = [root];
		while (stack.length) {
			const n = stack.pop();
			n.hit = hits !== null && n.frame >= 0 && hits[n.frame];
			for (const c of n.children.values())
				stack.push(c);
		}
	}

	// Bytes of stacks below n that contain a match, and the number of matching frames.
	function matchedIn(n) {
		let sum = 0, found = 0;
		const stack = [[n, false]];
		while (stack.length) {
			const [node, inside] = stack.pop();
			if (node.hit) {
				found++;
				if (!inside)
					sum += node.bytes;
			}
			for (const c of node.children.values())
				stack.push([c, inside || node.hit]);
		}
		for (let up = n.parent; up; up = up.parent)
			if (up.hit)
				sum = n.bytes;
		return [sum, found];
	}

	function showMatched() {
		graph.classList.toggle("searching", state.query !== "");
		if (!state.query) {
			$("matched").textContent = "";
			return;
		}
		const [sum, found] = matchedIn(zoom);
		$("matched").textContent = found || sum ?
			`${percent(sum, zoom.bytes)} matched · ${bytes(sum)}` :
			zoom === root ? "no match" : "no match in this frame";
	}

	// ---- drawing

	function place(n, left, width, out) {
		const el = document.createElement("div");
		const f = n.frame < 0 ? null : frames[n.frame];
		el.className = "f " + (data.diff ? Change.colour(n.old, n.new) : f ? KINDS[f.kind][0] : "root");
		el.classList.toggle("hit", n.hit);
		el.classList.toggle("above", n !== zoom && n.depth < zoom.depth);
		el.classList.toggle("thin", width < 12);
		el.classList.toggle("narrow", width < 72);
		el.style.left = left + "px";
		el.style.width = Math.max(width - (width > 3 ? 1 : 0), THIN) + "px";
		el.id = "f" + out.length;
		el.dataset.i = out.length;
		el.setAttribute("role", "treeitem");
		el.setAttribute("aria-level", n.depth + 1);
		el.setAttribute("aria-label", label(n) + ", " + (data.diff ? Change.words(n.old, n.new) + ", " : "") + bytes(n.bytes) + ", " + percent(n.bytes, root.bytes));
		if (width >= 24)
			write(el, n, f, width);
		out.push({ node: n, el, left, width });
	}

	function write(el, n, f, width) {
		const t = document.createElement("span");
		t.className = "t";
		t.textContent = shortLabel(n, width < 110);
		if (f && f.where && width > 90) {
			const w = document.createElement("span");
			w.className = "w";
			w.textContent = f.where;
			t.append(w);
		}
		el.append(t);
		if (width > 210) {
			const b = document.createElement("span");
			b.className = "b";
			b.textContent = data.diff ? Change.signed(n.new - n.old) : bytes(n.bytes);
			el.append(b);
		}
	}

	// Draws one bar for several frames that are too narrow.
	function placeMore(parent, nodes, sum, left, width, out) {
		const el = document.createElement("div");
		el.className = "f thin more";
		el.style.left = left + "px";
		el.style.width = width + "px";
		el.dataset.i = out.length;
		el.setAttribute("aria-hidden", "true");
		out.push({ node: parent, el, left, width, more: { n: nodes, bytes: sum } });
	}

	function label(n) {
		return n.frame < 0 ? "All of " + device().name : frames[n.frame].name;
	}

	// A submodule is shown without its parent's name: .attn in blocks.0, not blocks.0.attn. If the class does not
	// fit, the name alone is shown.
	function shortLabel(n, tight) {
		let name = label(n);
		if (n.frame < 0 || frames[n.frame].kind !== MODULE)
			return name;
		if (tight)
			name = name.split(" (")[0];
		if (state.leafFirst)
			return name;
		for (let up = n.parent; up && up.frame >= 0; up = up.parent)
			if (frames[up.frame].kind === MODULE) {
				const outer = frames[up.frame].name.split(" (")[0] + ".";
				return name.startsWith(outer) ? name.slice(outer.length - 1) : name;
			}
		return name;
	}

	function draw() {
		const width = graph.clientWidth;
		const out = [];
		for (let n = zoom.parent; n; n = n.parent)
			place(n, 0, width, out);
		out.reverse(); // outermost first
		out.forEach((o, i) => { o.el.id = "f" + i; o.el.dataset.i = i; });
		const scale = zoom.bytes ? width / zoom.bytes : 0;
		const todo = [[zoom, 0]];
		depths = zoom.depth + 1;
		while (todo.length) {
			const [n, left] = todo.pop();
			place(n, left, n.bytes * scale, out);
			depths = Math.max(depths, n.depth + 1);
			let x = left, i = 0;
			const kids = childrenOf(n);
			for (; i < kids.length && kids[i].bytes * scale >= THIN; i++) {
				todo.push([kids[i], x]);
				x += kids[i].bytes * scale;
			}
			let rest = 0;
			for (let k = i; k < kids.length; k++)
				rest += kids[k].bytes;
			if (rest * scale >= 1) {
				placeMore(n, kids.length - i, rest, x, rest * scale, out);
				depths = Math.max(depths, n.depth + 2);
			}
		}
		for (const o of out) {
			const depth = o.node.depth + (o.more ? 1 : 0);
			o.el.style.top = (state.icicle ? depth : depths - 1 - depth) * ROW + "px";
		}
		drawn = out;
		graph.style.height = depths * ROW + "px";
		graph.replaceChildren(...out.map(o => o.el));
		$("reset").disabled = zoom === root;
		showMatched();
		markAt();
	}

	// ---- details and tooltip

	function numbers(o) {
		if (o.more)
			return [`${count(o.more.n)} frames too narrow to draw`, bytes(o.more.bytes) + " · " + percent(o.more.bytes, root.bytes), "Zoom in to see them."];
		const n = o.node, f = n.frame < 0 ? null : frames[n.frame];
		const parts = [data.diff ? Change.words(n.old, n.new) : bytes(n.bytes), percent(n.bytes, root.bytes) + " of all"];
		if (zoom !== root && n.depth > zoom.depth)
			parts.push(percent(n.bytes, zoom.bytes) + " of the zoomed frame");
		if (n.known && n.count)
			parts.push(blocks(n.count));
		let where = f ? f.file + (f.file && f.line ? ":" + f.line : "") + (f.was ? ", moved from :" + f.was : "") : "";
		if (f && !where)
			where = NOTES[f.name] ?? "";
		return [label(n), parts.join(" · "), where];
	}

	function showDetails(o) {
		const [name, line, where] = o ? numbers(o) : ["", "", ""];
		$("d-name").textContent = name;
		$("d-numbers").textContent = line;
		$("d-where").textContent = where;
	}

	function showTip(o, x, y) {
		const tip = $("tip");
		const [name, line, where] = numbers(o);
		tip.children[0].textContent = name;
		tip.children[1].textContent = line;
		tip.children[2].textContent = where;
		tip.hidden = false;
		const box = tip.getBoundingClientRect();
		const left = Math.min(x + 14, innerWidth - box.width - 8);
		const top = y + 18 + box.height > innerHeight - 8 ? y - box.height - 10 : y + 18;
		tip.style.left = Math.max(8, left) + "px";
		tip.style.top = Math.max(8, top) + "px";
	}

	const hideTip = () => { $("tip").hidden = true; };
	const drawnAt = el => {
		const f = el instanceof Element ? el.closest(".f") : null;
		return f ? drawn[f.dataset.i] : null;
	};

	// ---- zoom and keyboard focus

	function zoomTo(n) {
		hideTip();
		zoom = n;
		at = n;
		draw();
		showDetails({ node: n });
	}

	function markAt() {
		const focused = document.activeElement === graph;
		graph.removeAttribute("aria-activedescendant");
		for (const o of drawn) {
			const here = focused && !o.more && o.node === at;
			o.el.classList.toggle("at", here);
			if (here) {
				graph.setAttribute("aria-activedescendant", o.el.id);
				o.el.scrollIntoView({ block: "nearest" });
			}
		}
	}

	function step(key) {
		const here = drawn.find(o => o.node === at && !o.more) ?? drawn.find(o => o.node === zoom);
		const inward = state.icicle ? "ArrowDown" : "ArrowUp", outward = state.icicle ? "ArrowUp" : "ArrowDown";
		let next = null;
		if (key === inward)
			next = here.node.depth < zoom.depth ? drawn.find(o => o.node.depth === here.node.depth + 1 && !o.more) :
				drawn.find(o => o.node === childrenOf(here.node)[0] && !o.more);
		else if (key === outward)
			next = drawn.find(o => o.node === here.node.parent && !o.more);
		else if (key === "Home")
			next = drawn.find(o => o.node === root);
		else {
			const row = drawn.filter(o => !o.more && o.node.depth === here.node.depth).sort((a, b) => a.left - b.left);
			next = row[row.indexOf(here) + (key === "ArrowRight" ? 1 : -1)];
		}
		if (!next)
			return;
		at = next.node;
		markAt();
		showDetails(next);
	}

	// ---- changes of the state

	function rebuild() {
		const keepZoom = zoom, keepAt = at;
		build();
		zoom = keepZoom ? findAgain(keepZoom) : root;
		at = keepAt ? findAgain(keepAt) : root;
		headline();
		const nothing = !root.bytes;
		graph.hidden = nothing;
		$("empty").hidden = !nothing;
		$("empty").textContent = `Nothing is allocated on ${device().name} here.`;
		showDetails(null);
		if (!nothing) {
			draw();
			showDetails({ node: zoom });
		}
		const v = view();
		$("notes").textContent = v.smaller ? `${count(v.smaller)} smallest stacks are in the one frame “[smaller stacks]”.` : "";
	}

	function diffHeadline() {
		const small = document.createElement("small"), { old, new: now } = data.diff;
		small.textContent = Change.headline(data, view(), root.bytes);
		$("headline").replaceChildren(Change.signed(now.bytes - old.bytes) + " ", small);
		document.title = `${Change.signed(now.bytes - old.bytes)}, ${device().name} · ${old.name} → ${now.name}`;
		graph.setAttribute("aria-label", `Flame graph of what changed: ${Change.words(old.bytes, now.bytes)}`);
	}

	function headline() {
		const v = view(), d = device();
		if (data.diff)
			return diffHeadline();
		const when = {
			peak: `at the peak on ${d.name}`,
			oom: `when ${d.name} ran out of memory`,
			end: `at the end on ${d.name}`,
			total: `allocated in total on ${d.name}`,
		}[v.id] ?? `at ${v.id} on ${d.name}`;
		const parts = [when];
		if (v.id === "peak" || v.id === "oom")
			parts[0] += v.time !== undefined ? `, at ${seconds(v.time)}` : "";
		const inside = [v.step !== undefined && `step ${v.step}`, v.phase !== "other" && v.phase].filter(Boolean);
		if (inside.length)
			parts.push(inside.join(", "));
		if (v.reserved)
			parts.push(`${bytes(v.reserved)} reserved`);
		const small = document.createElement("small");
		small.textContent = parts.join(" · ");
		$("headline").replaceChildren(bytes(root.bytes) + " ", small);
		document.title = `${bytes(root.bytes)} ${v.label.toLowerCase()}, ${d.name} · pid ${data.facts.pid ?? "?"} · ${command(data)}`;
		graph.setAttribute("aria-label", `Flame graph: ${bytes(root.bytes)} ${when}`);
	}

	function facts() {
		if (data.diff)
			return Change.facts(data, $("facts"), $("command"));
		const f = data.facts;
		const items = [
			f.pid && `pid ${f.pid}`,
			f.torch && `torch ${f.torch}`,
			f.python && `Python ${f.python}`,
			seconds(data.duration),
			`${count(data.events)} events`,
		].filter(Boolean);
		for (const text of items) {
			const li = document.createElement("li");
			li.textContent = text;
			$("facts").append(li);
		}
		const lost = document.createElement("li");
		lost.textContent = `${count(data.lost)} lost`;
		lost.className = data.lost ? "warn" : "";
		$("facts").append(lost);
		$("command").textContent = command(data);
	}

	function legend() {
		if (data.diff)
			return Change.legend($("legend"));
		const used = new Set(), seen = new Set();
		for (const v of data.devices.flatMap(d => d.views))
			for (let n of v.node)
				for (; n >= 0 && !seen.has(n); n = data.nodes.parent[n]) {
					seen.add(n);
					used.add(frames[data.nodes.frame[n]].kind);
				}
		KINDS.forEach(([cls, name], kind) => {
			if (!used.has(kind))
				return;
			const li = document.createElement("li"), i = document.createElement("i");
			i.className = cls;
			li.append(i, name);
			$("legend").append(li);
		});
	}

	function views() {
		const buttons = device().views.map((v, i) => {
			const b = document.createElement("button"), size = document.createElement("span");
			b.type = "button";
			b.setAttribute("role", "radio");
			b.setAttribute("aria-checked", String(i === state.view));
			b.tabIndex = i === state.view ? 0 : -1;
			size.textContent = bytes(total(v));
			b.append(v.label, size);
			b.addEventListener("click", () => chooseView(i));
			return b;
		});
		$("views").replaceChildren(...buttons);
	}

	function chooseView(i) {
		const had = $("views").contains(document.activeElement);
		state.view = i;
		views();
		rebuild();
		if (had)
			$("views").children[i].focus();
	}

	function devices() {
		$("device-box").hidden = data.devices.length < 2;
		data.devices.forEach((d, i) => {
			const o = document.createElement("option");
			o.value = i;
			o.textContent = d.name;
			o.selected = i === state.device;
			$("device").append(o);
		});
	}

	// ---- events

	graph.addEventListener("click", e => {
		const o = drawnAt(e.target);
		graph.focus({ preventScroll: true });
		if (o)
			zoomTo(o.node);
	});
	graph.addEventListener("pointermove", e => {
		const o = drawnAt(e.target);
		if (!o || e.pointerType !== "mouse") {
			hideTip();
			return;
		}
		showTip(o, e.clientX, e.clientY);
		showDetails(o);
	});
	graph.addEventListener("pointerleave", () => {
		hideTip();
		if (at)
			showDetails({ node: at });
	});
	graph.addEventListener("focus", markAt);
	graph.addEventListener("blur", markAt);
	graph.addEventListener("keydown", e => {
		if (e.ctrlKey || e.metaKey || e.altKey)
			return;
		if (["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home"].includes(e.key))
			step(e.key);
		else if (e.key === "Enter" || e.key === " ")
			zoomTo(at);
		else
			return;
		e.preventDefault();
	});

	$("views").addEventListener("keydown", e => {
		const n = device().views.length;
		const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: n - 1, ArrowUp: n - 1 }[e.key];
		if (!by)
			return;
		e.preventDefault();
		chooseView((state.view + by) % n);
	});

	$("search").addEventListener("input", e => {
		state.query = e.target.value.trim().toLowerCase();
		search();
		if (root.bytes)
			draw();
	});

	addEventListener("keydown", e => {
		const typing = document.activeElement === $("search");
		// A second Ctrl-F opens the browser's own search.
		if (((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "f" && !typing) ||
		    (e.key === "/" && !typing && document.activeElement !== $("device"))) {
			e.preventDefault();
			$("search").focus();
			$("search").select();
		} else if (e.key === "Escape") {
			if (typing && $("search").value) {
				$("search").value = "";
				$("search").dispatchEvent(new Event("input"));
				e.preventDefault();
			} else if (typing) {
				graph.focus();
			} else if (zoom !== root) {
				zoomTo(root);
			}
		}
	});

	$("reset").addEventListener("click", () => zoomTo(root));
	$("device").addEventListener("change", e => {
		const id = view().id;
		state.device = Number(e.target.value);
		state.view = Math.max(0, device().views.findIndex(v => v.id === id));
		views();
		rebuild();
	});
	for (const [id, key] of OPTIONS)
		$(id).addEventListener("change", e => {
			state[key] = e.target.checked;
			rebuild();
			if (id === "icicle" && !state.icicle)
				graph.scrollIntoView({ block: "end" }); // show the root
		});

	let width = 0;
	new ResizeObserver(() => {
		if (graph.clientWidth === width || !root.bytes)
			return;
		width = graph.clientWidth;
		draw();
	}).observe(graph);

	// Browsers restore form values on reload, so read the state from the form.
	for (const [id, key] of OPTIONS)
		state[key] = $(id).checked;
	state.query = $("search").value.trim().toLowerCase();
	$("merge-box").hidden = !starred.size;
	facts();
	devices();
	legend();
	views();
	if (data.diff)
		Change.table(data, frames, $("table"));
	rebuild();
})();
