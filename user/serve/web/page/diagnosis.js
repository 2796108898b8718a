// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// What `diagnose` says of a capture, above its report.
"use strict";
(() => {
	const { $, el } = Page;
	const AGAIN = [0, 401, 409, 429]; // no diagnosis was started: the server is away or busy, or the capture runs
	let of = "", diagnosis = null;

	function use(f) {
		const line = Findings.line(f), device = f.device ?? "";
		if (f.code === "out_of_memory")
			return { title: "Go to that moment", run: () => Page.report.change({ tab: "rows", device, at: "oom" }) };
		if (Findings.grows(f))
			return { title: "Show what grows", run: () => Page.report.change({ tab: "leaks" }) };
		return line && { title: "Filter to this line", run: () => Page.report.change({ tab: "rows", device, filter: line }) };
	}

	// Asks once for each capture. Calls then() when the answer has come.
	async function show(id, then) {
		if (of === id)
			return;
		of = id;
		diagnosis = null;
		$("trace-findings").replaceChildren();
		try {
			const answer = await Page.net.api(`trace/${encodeURIComponent(id)}/diagnose`);
			if (of !== id)
				return;
			diagnosis = answer;
			Findings.show($("trace-findings"), diagnosis, use);
			then();
		} catch (err) {
			if (of !== id)
				return;
			if (AGAIN.includes(err.status))
				of = ""; // the report says why
			else
				$("trace-findings").replaceChildren(el("li", {}, el("div", { textContent: `The findings are not known: ${err.message}` })));
		}
	}

	// The device that ran out of memory; null: none did, or the answer has not come yet.
	const oomDevice = id => of === id && diagnosis?.findings.find(f => f.code === "out_of_memory")?.device || null;

	Page.diagnosis = { show, oomDevice };
})();
