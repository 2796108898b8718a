# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
DOCDIR = $(PREFIX)/share/doc/memtrace-bpf
KUBECTL := tools/packaging/deploy/kubectl-memtrace_bpf
UNITS := tools/packaging/systemd/memtrace-bpf-watch@.service tools/packaging/deploy/memtrace-bpf-serve.service
# For bash, zsh and fish, below share.
COMPLETIONS := bash-completion/completions/memtrace-bpf zsh/site-functions/_memtrace-bpf fish/vendor_completions.d/memtrace-bpf.fish

.PHONY: install uninstall
install: all ## install program, libraries, manual, documents, completions and units below PREFIX
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/share/man/man7 $(DESTDIR)$(PREFIX)/share/man/man8 $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/dryrun $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/inside
	install -m 0755 $(OUTPUT)/memtrace-bpf $(DESTDIR)$(PREFIX)/bin/
	install -m 0755 $(KUBECTL) $(DESTDIR)$(PREFIX)/bin/
	install -m 0755 $(TOKEN) $(DESTDIR)$(PREFIX)/sbin/
	install -m 0644 $(DRYRUN)/libcuda.so.1 $(DRYRUN)/libnvidia-ml.so.1 $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/dryrun/
	ln -sf libcuda.so.1 $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/dryrun/libcuda.so
	install -m 0644 $(INSIDE)/libmemtrace-inside.so $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/inside/

	install -d $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/phases
	install -m 0644 tools/packaging/wheel/phases.py $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/phases/memtrace_phases.py
	install -m 0644 tools/inprocess/memtrace_phase.h $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/phases/
	install -d $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/replay
	install -m 0755 $(OUTPUT)/replay/replayer $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/replay/
	install -m 0644 $(filter %.7,$(MANUAL)) $(DESTDIR)$(PREFIX)/share/man/man7/
	install -m 0644 $(filter %.8,$(MANUAL)) $(DESTDIR)$(PREFIX)/share/man/man8/
	for folder in guide reference; do \
		install -d $(DESTDIR)$(DOCDIR)/$$folder && install -m 0644 docs/$$folder/* $(DESTDIR)$(DOCDIR)/$$folder/ || exit 1; \
	done
	install -d $(DESTDIR)$(DOCDIR)/skill/memtrace-bpf && install -m 0644 docs/skill/memtrace-bpf/SKILL.md $(DESTDIR)$(DOCDIR)/skill/memtrace-bpf/
	install -d $(DESTDIR)$(UNITDIR) $(addprefix $(DESTDIR)$(PREFIX)/share/,$(dir $(COMPLETIONS)))
	install -m 0644 tools/packaging/completion/memtrace-bpf.bash $(DESTDIR)$(PREFIX)/share/$(word 1,$(COMPLETIONS))
	install -m 0644 tools/packaging/completion/_memtrace-bpf $(DESTDIR)$(PREFIX)/share/$(word 2,$(COMPLETIONS))
	install -m 0644 tools/packaging/completion/memtrace-bpf.fish $(DESTDIR)$(PREFIX)/share/$(word 3,$(COMPLETIONS))
	for unit in $(UNITS); do \
		sed 's|@BINDIR@|$(PREFIX)/bin|' $$unit >$(DESTDIR)$(UNITDIR)/$$(basename $$unit) && chmod 0644 $(DESTDIR)$(UNITDIR)/$$(basename $$unit) || exit 1; \
	done

uninstall: ## remove what install has installed
	rm -f $(DESTDIR)$(PREFIX)/bin/memtrace-bpf $(DESTDIR)$(PREFIX)/bin/$(notdir $(KUBECTL)) $(DESTDIR)$(PREFIX)/sbin/memtrace-bpf-token $(DESTDIR)$(PREFIX)/share/man/man[78]/memtrace-bpf.[78] $(DESTDIR)$(PREFIX)/share/man/man[78]/memtrace-bpf-*.[78]
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/share/,$(COMPLETIONS))
	rm -rf $(DESTDIR)$(PREFIX)/lib/memtrace-bpf $(DESTDIR)$(DOCDIR)
	rm -f $(addprefix $(DESTDIR)$(UNITDIR)/,$(notdir $(UNITS)))
