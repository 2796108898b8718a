// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// /api/docs. No validator, because that is an external service.
"use strict";
SwaggerUIBundle({
	url: "openapi.json",
	dom_id: "#docs",
	deepLinking: true,
	validatorUrl: null,
	tryItOutEnabled: true,
	displayRequestDuration: true,
	presets: [SwaggerUIBundle.presets.apis],
	onComplete: () => { document.body.dataset.state = "ready"; },
});
