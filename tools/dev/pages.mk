# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# Pages of `export` and `serve`: parts of user/export and user/serve/web, and what npm brings, as C arrays.

# What exported pages are made of, as arrays.
$(OUTPUT)/gen/assets/%.h: user/export/assets/% tools/dev/embed.py tools/dev/packed.py
	$(call msg,EMBED,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)tools/dev/embed.py asset_$(subst .,_,$*) $< >$@

# The page of export html: its parts and uPlot as one template. uPlot comes through npm, once: tools/deps.sh keeps it.
PAGE := user/export/page
PAGE_STYLES := $(wildcard $(PAGE)/*.css)
# kit.js and base.js have what the others stand on, main.js puts them together.
PAGE_SCRIPTS := $(wildcard $(addprefix user/export/assets/,words.js dom.js flames.js growth.js findings.js) $(PAGE)/kit.js $(PAGE)/base.js) \
	$(filter-out $(PAGE)/kit.js $(PAGE)/base.js $(PAGE)/main.js,$(sort $(wildcard $(PAGE)/*.js))) $(wildcard $(PAGE)/main.js)

PAGE_FILES := uplot/dist/uPlot.iife.min.js uplot/dist/uPlot.min.css uplot/LICENSE

$(OUTPUT)/gen/uplot/.complete: $(PAGE)/package-lock.json
	$(call msg,UPLOT,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)dir=$$(tools/deps.sh page) && cd $$dir/node_modules && cp $(PAGE_FILES) $(abspath $(dir $@))
	$(Q)touch $@

$(OUTPUT)/gen/page.html: tools/dev/bundle_page.py $(PAGE)/page.html $(PAGE_STYLES) $(PAGE_SCRIPTS) $(OUTPUT)/gen/uplot/.complete
	$(call msg,BUNDLE,$@)
	$(Q)tools/dev/bundle_page.py $(PAGE)/page.html -o $@ --notice $(OUTPUT)/gen/uplot/LICENSE \
		--style $(OUTPUT)/gen/uplot/uPlot.min.css $(PAGE_STYLES) --script $(OUTPUT)/gen/uplot/uPlot.iife.min.js $(PAGE_SCRIPTS)

$(OUTPUT)/gen/assets/page.html.h: $(OUTPUT)/gen/page.html tools/dev/embed.py tools/dev/packed.py
	$(call msg,EMBED,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)tools/dev/embed.py asset_page_html $< >$@

# The page of report --format html.
RANKS_PAGE := user/report/page
RANKS_STYLES := $(PAGE_STYLES) user/export/assets/rankmap.css
RANKS_SCRIPTS := $(addprefix user/export/assets/,words.js dom.js) $(PAGE)/kit.js user/export/assets/rankmap.js $(RANKS_PAGE)/ranks.js

$(OUTPUT)/gen/ranks.html: tools/dev/bundle_page.py $(RANKS_PAGE)/ranks.html $(RANKS_STYLES) $(RANKS_SCRIPTS)
	$(call msg,BUNDLE,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)tools/dev/bundle_page.py $(RANKS_PAGE)/ranks.html -o $@ --holes HEAD --style $(RANKS_STYLES) --script $(RANKS_SCRIPTS)

$(OUTPUT)/gen/assets/ranks.html.h: $(OUTPUT)/gen/ranks.html tools/dev/embed.py tools/dev/packed.py
	$(call msg,EMBED,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)tools/dev/embed.py asset_ranks_html $< >$@

# What --json-schema prints.
$(OUTPUT)/gen/assets/schemas.h: tools/dev/bundle_schemas.py tools/dev/packed.py $(wildcard user/cmd/schema/*.json)
	$(call msg,BUNDLE,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)tools/dev/bundle_schemas.py user/cmd/schema -o $@

# What serve shows in a browser: the dashboard, which looks as the page does, and the documentation of its API.
DASH := user/serve/web/page
DASH_STYLES := $(PAGE)/page.css user/export/assets/rankmap.css $(wildcard $(DASH)/*.css)
DASH_FIRST := $(addprefix user/export/assets/,words.js dom.js growth.js findings.js) $(PAGE)/kit.js user/export/assets/rankmap.js $(DASH)/base.js $(PAGE)/list.js $(DASH)/grid.js
DASH_SCRIPTS := $(DASH_FIRST) $(filter-out $(DASH_FIRST) $(DASH)/main.js,$(sort $(wildcard $(DASH)/*.js))) $(DASH)/main.js
DOCS := user/serve/web/docs
DOCS_FILES := swagger-ui-dist/swagger-ui-bundle.js swagger-ui-dist/swagger-ui.css swagger-ui-dist/LICENSE swagger-ui-dist/NOTICE \
	swagger-ui-dist/swagger-ui-bundle.js.LICENSE.txt redoc/bundles/redoc.standalone.js redoc/LICENSE redoc/bundles/redoc.standalone.js.LICENSE.txt
comma := ,
empty :=
listed = $(subst $(empty) $(empty),$(comma),$(strip $(1)))

$(OUTPUT)/gen/docs/.complete: $(DOCS)/package-lock.json
	$(call msg,DOCS,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)dir=$$(tools/deps.sh docs) && cd $$dir/node_modules && cp --parents $(DOCS_FILES) $(abspath $(dir $@))
	$(Q)touch $@

$(OUTPUT)/gen/assets/serve_pages.h: tools/dev/bundle_serve.py tools/dev/packed.py $(wildcard $(DASH)/*.html $(DOCS)/*.html $(DOCS)/*.js $(DOCS)/*.css) $(DASH_STYLES) \
	$(DASH_SCRIPTS) $(OUTPUT)/gen/uplot/.complete $(OUTPUT)/gen/docs/.complete
	$(call msg,BUNDLE,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)tools/dev/bundle_serve.py -o $@ --page /=$(DASH)/index.html --page /api/docs=$(DOCS)/swagger.html --page /api/redoc=$(DOCS)/redoc.html \
		--asset dash.css=$(call listed,$(OUTPUT)/gen/uplot/uPlot.min.css $(DASH_STYLES)) --asset dash.js=$(call listed,$(DASH_SCRIPTS)) \
		--asset uplot.js=$(OUTPUT)/gen/uplot/uPlot.iife.min.js --asset docs.css=$(DOCS)/docs.css \
		--asset swagger.js=$(DOCS)/swagger.js --asset redoc.js=$(DOCS)/redoc.js \
		--asset swagger-ui-bundle.js=$(OUTPUT)/gen/docs/swagger-ui-dist/swagger-ui-bundle.js \
		--asset swagger-ui.css=$(OUTPUT)/gen/docs/swagger-ui-dist/swagger-ui.css \
		--asset redoc.standalone.js=$(OUTPUT)/gen/docs/redoc/bundles/redoc.standalone.js \
		--asset licences.txt=$(call listed,$(OUTPUT)/gen/uplot/LICENSE $(addprefix $(OUTPUT)/gen/docs/,$(filter %LICENSE %NOTICE %.txt,$(DOCS_FILES)))) \
		--replace redoc.standalone.js https://cdn.redoc.ly/redoc/logo-mini.svg 'data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22/%3E'
