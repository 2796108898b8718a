// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Growth in a capture by line of code, as `leaks` judges it.
"use strict";
(() => {
	const { $, el, model } = Page;
	const STEPS = 60; // steps of a capture that judges growth well
	let shown = "";

	// The process of a capture, if it still runs.
	function processOf(id) {
		const t = model.traces.get(id), p = t?.pid ? model.processes.get(t.pid) : null;
		return p && !p.gone && p.started <= t.begun && model.hello?.can_trace !== false ? p : null;
	}

	async function capture(pid, host) {
		try {
			const t = await Page.net.api("trace/memory", { method: "POST", body: { wait: false, pid, steps: STEPS, host } });
			Page.capture.mine(t);
			Page.set({ chosen: "p " + pid });
			Page.go("#/");
		} catch (err) {
			Page.say(`Cannot capture: ${err.message}`);
		}
	}

	function longer(id) {
		const p = processOf(id);
		return p ? el("p", {}, el("button", { type: "button", className: "main", textContent: `Capture ${STEPS} steps`, onclick: () => capture(p.pid, Boolean(model.traces.get(id).host)) })) : "";
	}

	async function show(id) {
		if (shown === id)
			return;
		shown = id;
		$("leaks").replaceChildren(el("p", { className: "none", textContent: "Reading the capture…" }));
		try {
			const doc = await Page.net.api(`trace/${encodeURIComponent(id)}/leaks`);
			if (shown !== id)
				return;
			$("leaks").replaceChildren(...doc.devices.map(d => Growth.device(d, doc, { summary: d.growth, longer: () => longer(id), use: l => Page.report.change({ tab: "rows", device: d.device, filter: `line:${Page.columns.base(l.file)}${l.line ? ":" + l.line : ""}` }) })));
		} catch (err) {
			shown = "";
			$("leaks").replaceChildren(el("p", { className: "none warn", role: "alert", textContent: err.message }));
		}
	}

	Page.leaks = { show };
})();
