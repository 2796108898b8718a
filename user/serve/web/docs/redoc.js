// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// /api/redoc, in the fonts and colours of the dashboard.
"use strict";
Redoc.init("openapi.json", {
	disableSearch: false,
	hideDownloadButton: true,
	nativeScrollbars: true,
	scrollYOffset: "nav",
	theme: {
		colors: { primary: { main: "#0b5cad" }, text: { primary: "#1a1d21" } },
		typography: {
			fontSize: "14px",
			fontFamily: 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif',
			headings: { fontFamily: 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif' },
			code: { fontFamily: 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace' },
		},
	},
}, document.getElementById("docs"), err => { document.body.dataset.state = err ? "failed" : "ready"; });
