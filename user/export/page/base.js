// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// What the parts of the page stand on. Names come from a traced program: they reach the page as textContent only.
"use strict";
const Page = { $: id => document.getElementById(id) };
