"""Accounting and maps of code memory."""

import xml.etree.ElementTree as ElementTree

import jittison


def test_the_usage_of_trackers_adds_up_to_that_of_their_dylib_and_session(jit, cc):
    trackers = [jit.main.create_tracker() for _ in range(3)]
    for number, tracker in enumerate(trackers):
        tracker.link_object(cc("char d{0}[100 << {0}] = {{1}}; int f{0}(void) {{ return d{0}[0]; }}".format(number)))
    usages = [tracker.usage for tracker in trackers]
    for field in ("allocations", "code", "read_only", "data", "reserved", "metadata", "total"):
        assert getattr(jit.main.usage, field) == sum(getattr(usage, field) for usage in usages), field
    statistics = jit.memory_statistics()
    assert statistics.allocations == 3 and statistics.reserved_bytes == jit.main.usage.reserved
    assert statistics.live_bytes == sum(usage.code + usage.read_only + usage.data for usage in usages)
    assert set(statistics.pools) == {"code", "read-only", "data"}
    assert statistics.pools["data"].requested == sum(usage.data for usage in usages)
    assert usages[0] == trackers[0].usage != usages[1]
    jit.main.clear()
    assert jit.memory_statistics().live_bytes == 0 and jit.main.usage.total == 0


def test_a_map_names_the_tenants(jit, cc):
    tracker = jit.main.create_tracker()
    tracker.link_object(cc("int f(void) { return 1; }"), "one.o")
    memory = jit.memory_map()
    [tenant] = memory.tenants
    assert (tenant.object, tenant.dylib) == ("one.o", "main") and tracker.key in tenant.owner
    start, size = tenant.segments["code"]
    assert start <= jit.address_of("f") < start + size
    assert memory.live_bytes >= jit.memory_statistics().live_bytes > 0
    assert "one.o" in memory.to_text() and str(memory) == memory.to_text()


def test_a_map_is_a_picture_in_a_notebook(jit, cc):
    jit.main.create_tracker().link_object(cc("int f(void) { return 1; }"), "<one&two>.o")
    memory = jit.memory_map()
    root = ElementTree.fromstring(memory.to_svg())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    for shown in (memory, jit):
        html = shown._repr_html_()
        assert html.startswith("<div") and html.endswith("</svg></div>") or html.rstrip().endswith("</div>")
        assert "<svg" in html and "<?xml" not in html and "<one&two>" not in html
        ElementTree.fromstring(html)


def test_an_address_is_located(jit, tracker, cc):
    tracker.add_object(cc("int f(void) { return 1; }"), "one.o")
    function = jit.lookup("f", "int()")
    found = jit.locate(function.address + 1)
    assert (found.function, found.offset, found.object, found.dylib) == ("f", 1, "one.o", "main")
    assert jit.locate(8) is None


def test_free_memory_is_returned(jit, cc):
    tracker = jit.main.create_tracker()
    tracker.link_object(cc("char big[1 << 20] = {1}; char *f(void) { return big; }"))
    tracker.remove()
    assert jit.release_free() > 1 << 20
    assert jit.release_free_slabs() >= 0


def test_every_object_says_what_it_is(jit, tracker, add):
    kernels = jit.patchable(["scale"])
    shown = [jit, jit.main, tracker, add, jit.memory_map(), jit.memory_statistics(), tracker.usage, kernels]
    shown += [tracker.remove(), jit.locate(add.address)]
    for value in shown:
        assert repr(value).startswith("<jittison."), repr(value)
    assert "add" in repr(add) and "int(int, int)" in repr(add) and add.__name__ == "add"
