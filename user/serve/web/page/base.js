// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Shared by the parts of the dashboard, in addition to kit.js: the server's data, the state of the page and helpers.
// Names come from traced programs: use them only as textContent.
"use strict";
const Page = (() => {
	const { $, el } = Kit;
	const HISTORY = 900; // samples kept per process

	// ---- data from the server

	const model = {
		hello: null,
		targets: [],
		processes: new Map(), // pid -> its last event, with samples[] and last
		traces: new Map(), // trace_id -> the trace
	};
	// State of the page. Numbers are change counters: targets, processes, samples, traces, theme.
	const state = {
		route: { view: "home" },
		link: "opening", // "open", "lost" or "token" (a token is required)
		hello: 0, targets: 0, processes: 0, samples: 0, traces: 0, theme: 0,
		chosen: "", // "p PID" or "t TARGET"
		device: "",
		range: 300, // seconds shown by the chart
		marked: new Set(), // IDs of traces selected for comparison
	};
	const { watch, touch, set, settle } = Kit.store(state);

	function begin(hello) {
		model.hello = hello;
		model.targets = [];
		model.before = model.processes;
		model.processes = new Map();
		model.traces = new Map();
		for (const key of ["hello", "targets", "processes", "traces"])
			touch(key);
	}

	function takeProcess(p) {
		const known = model.processes.get(p.pid) ?? model.before?.get(p.pid);
		const same = known && known.started === p.started;
		if (p.gone) {
			if (!same)
				return;
			// Keep the selected process until another one is selected.
			if (state.chosen === "p " + p.pid)
				known.gone = true;
			else
				model.processes.delete(p.pid);
		} else {
			model.processes.set(p.pid, { samples: [], last: null, ...(same ? known : {}), ...p, gone: false });
		}
		touch("processes");
	}

	function takeSample(s) {
		const p = model.processes.get(s.pid);
		if (!p || (p.last && s.time <= p.last.time))
			return;
		// The server keeps the history of other processes until they are selected.
		if (state.chosen === "p " + s.pid)
			p.samples.push(s);
		else
			p.samples.length = 0;
		if (p.samples.length > HISTORY)
			p.samples.shift();
		p.last = s;
		touch("samples");
	}

	// Puts a process's history from the server before the samples received since.
	function takeHistory(pid, samples) {
		const p = model.processes.get(pid);
		if (!p || !Array.isArray(samples))
			return;
		const all = new Map();
		for (const s of [...samples, ...p.samples])
			all.set(s.time, { ...s, pid });
		p.samples = [...all.values()].sort((a, b) => a.time - b.time).slice(-HISTORY);
		p.last = p.samples[p.samples.length - 1] ?? p.last;
		touch("samples");
	}

	function takeTrace(t) {
		model.traces.set(t.trace_id, { ...model.traces.get(t.trace_id), ...t });
		touch("traces");
	}

	function dropTrace(id) {
		if (!model.traces.delete(id))
			return;
		state.marked.delete(id);
		touch("traces");
	}

	function take(event, data) {
		switch (event) {
		case "hello": begin(data); break;
		case "targets": model.targets = data.targets ?? []; touch("targets"); break;
		case "process": takeProcess(data); break;
		case "sample": takeSample(data); break;
		case "trace": if (data.trace?.trace_id ?? data.trace_id) takeTrace(data.trace ?? data); break;
		case "gone": dropTrace(data.trace_id); break;
		}
	}

	const chosenProcess = () => state.chosen.startsWith("p ") ? model.processes.get(Number(state.chosen.slice(2))) : undefined;
	const chosenTarget = () => state.chosen.startsWith("t ") ? model.targets.find(t => t.name === state.chosen.slice(2)) : undefined;

	// ---- address: #/, #/trace/ID?by=line, #/compare?traces=A,B, #/ranks?colour=growth

	function readRoute() {
		const [path, query] = location.hash.replace(/^#\/?/, "").split("?"), p = new URLSearchParams(query ?? "");
		const [view, id] = path.split("/");
		if (view === "trace" && id)
			return { view, id, query: p };
		if (view === "compare")
			return { view: "diff", traces: (p.get("traces") ?? "").split(",").filter(Boolean), query: p };
		if (view === "ranks")
			return { view, traces: (p.get("traces") ?? "").split(",").filter(Boolean), query: p };
		return { view: "home", query: p };
	}
	const traceAddress = (id, query) => "#/trace/" + encodeURIComponent(id) + (query ? "?" + query : "");
	const go = hash => { location.hash = hash; };
	// Changes the address without an entry for the back button.
	function stay(hash) {
		if (hash !== location.hash)
			history.replaceState(null, "", hash);
	}

	// ---- helpers

	// The displayed name of a capture.
	const traceName = t => t.model_name || t.process || (t.pid ? "PID " + t.pid : t.trace_id);

	const today = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
	const another = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
	function clock(s) {
		const d = new Date(s * 1000);
		return (d.toDateString() === new Date().toDateString() ? today : another).format(d);
	}

	let sayWait = 0;
	function say(text, link) {
		const box = $("say");
		box.replaceChildren(text, ...(link ? [" ", el("a", { href: link[1], textContent: link[0] })] : []));
		box.hidden = false;
		clearTimeout(sayWait);
		sayWait = setTimeout(() => { box.hidden = true; }, 8000);
	}

	// Resolves to true if the user answers yes. A question replaced by another one resolves to false.
	let answer = null;
	function ask(text, yes) {
		answer?.(false);
		$("ask-text").textContent = text;
		$("ask-yes").textContent = yes;
		const d = $("ask");
		d.returnValue = "no";
		d.showModal();
		// The close event may arrive when the next question is already open.
		d.onclose = () => { if (!d.open) answer?.(d.returnValue === "yes"); };
		return new Promise(done => { answer = done; });
	}

	// Bars of allocated, reserved and total use over the device's memory, with a mark at the peak.
	function meter(d) {
		const whole = d.total || Math.max(d.used ?? 0, d.reserved ?? 0, d.peak_allocated ?? 0, d.allocated ?? 0) || 1;
		const part = (cls, v) => {
			const i = el("i", { className: cls });
			i.style.width = Math.min(100, Math.max(0, v) / whole * 100) + "%";
			return i;
		};
		const box = el("span", { className: "meter", "aria-hidden": "true" }, part("m-used", d.used ?? 0), part("m-reserved", d.reserved ?? 0), part("m-allocated", d.allocated ?? 0));
		if (d.peak_allocated) {
			const tick = el("i", { className: "m-peak" });
			tick.style.left = Math.min(100, d.peak_allocated / whole * 100) + "%";
			box.append(tick);
		}
		return box;
	}

	// Radio buttons; arrow keys select the next one.
	function radios(box, items, chosen, choose, make) {
		const at = Math.max(0, items.indexOf(chosen));
		const had = box.contains(document.activeElement);
		box.replaceChildren(...items.map((item, i) => {
			const b = make(item);
			b.setAttribute("role", box.getAttribute("role") === "tablist" ? "tab" : "radio");
			b.setAttribute(box.getAttribute("role") === "tablist" ? "aria-selected" : "aria-checked", String(i === at));
			b.type = "button";
			b.tabIndex = i === at ? 0 : -1;
			b.addEventListener("click", () => choose(item));
			b.addEventListener("keydown", e => {
				const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1 }[e.key];
				if (to === undefined)
					return;
				e.preventDefault();
				e.stopPropagation();
				choose(items[(to + items.length) % items.length]);
			});
			return b;
		}));
		if (had)
			box.children[at]?.focus();
	}

	return {
		...Kit, state, model, watch, touch, set, settle, take, takeTrace, takeHistory, dropTrace, chosenProcess, chosenTarget, readRoute, traceAddress, go, stay,
		traceName, clock, say, ask, meter, radios,
	};
})();
