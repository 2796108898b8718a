# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# Packages, each made by one script from what `make install` installs, in $(OUTPUT)/packages. Two builds of a commit are the same to the
# byte. STATIC=1 makes them for any host; without it they suit machines like this one.

PACKAGES := $(OUTPUT)/packages
STAGE := $(abspath $(PACKAGES))/stage
STRIP := $(CROSS_COMPILE)strip
PACKAGING = VERSION=$(VERSION) ARCH=$(ARCH) OUTPUT=$(abspath $(OUTPUT)) STAGE=$(STAGE) LC_ALL=C.UTF-8 tools/packaging

.PHONY: stage wheel deb rpm image source sbom
# The program and the manual pages have the date of the commit in them.
stage:
	$(Q)rm -rf $(STAGE)
	$(Q)SOURCE_DATE_EPOCH=$$($(PACKAGING)/release.py epoch) $(MAKE) --no-print-directory -s OUTPUT=$(OUTPUT) install DESTDIR=$(STAGE) PREFIX=/usr
	$(Q)find $(addprefix $(STAGE)/usr/,bin/memtrace-bpf sbin/memtrace-bpf-token lib/memtrace-bpf) -type f ! -name "*.py" ! -name "*.h" -exec $(STRIP) --strip-unneeded --remove-section=.comment {} +
	$(Q)$(PACKAGING)/linked.py notices >$(STAGE)/usr/share/doc/memtrace-bpf/THIRD-PARTY.txt

wheel: stage ## make a wheel for pip install, in .output/packages
	$(Q)$(PACKAGING)/wheel.py

deb: stage ## make a .deb (with STATIC=1)
	$(Q)$(PACKAGING)/deb.py

rpm: stage ## make an .rpm (with STATIC=1)
	$(Q)$(PACKAGING)/rpm.py

image: stage ## make a container image, for podman load or docker load (with STATIC=1)
	$(Q)$(PACKAGING)/image.py

source: ## make the source tarball of HEAD, which builds without a network
	$(Q)BUNDLE_page='$(PAGE_FILES)' BUNDLE_docs='$(DOCS_FILES)' $(PACKAGING)/source.py

sbom: stage ## list what the packages consist of, as SPDX JSON (with STATIC=1)
	$(Q)$(PACKAGING)/sbom.py

.PHONY: release release-files release-check packages-dir
release: ## make all packages, the source tarball, SBOM and checksums, in .output-static/packages
	$(Q)$(MAKE) --no-print-directory STATIC=1 release-files

# From nothing: objects of an older build may have been compiled with other options.
release-files:
	$(Q)$(PACKAGING)/collect.py check
	$(Q)$(MAKE) --no-print-directory -s clean
	$(Q)$(MAKE) --no-print-directory wheel deb rpm image source sbom
	$(Q)$(PACKAGING)/collect.py

release-check: ## make the release twice, here and in a clone, and compare the checksums
	$(Q)MAKE=$(MAKE) tools/packaging/release_check.sh

packages-dir:
	@echo $(PACKAGES)

.PHONY: test-packages test-packages-static
test-packages: ## make the packages, install and remove them in fresh systems (five minutes)
	$(Q)tools/deps.sh build packaging torch
	$(Q)$(MAKE) --no-print-directory STATIC=1 test-packages-static

test-packages-static: wheel deb rpm image source
	$(Q)OUTPUT=$(abspath $(OUTPUT)) tests/packages/run.sh
