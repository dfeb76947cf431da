//! Objects for AArch64 with more code than branches reach, linked on any host and never run. Debug builds verify each link.

use crate::aarch64::{Linked, assembled, link};

const BASE: u64 = 0x40_0000;
const REACH: u64 = 128 << 20;

/// Where a branch leads in the end, and whether a veneer is on the way.
#[derive(Debug, PartialEq)]
enum Way {
    Direct(u64),
    ByVeneer(u64),
    ByVeneerAndSlot(u64),
}

fn instruction(linked: &Linked, address: u64) -> u32 {
    let is_in = |start: u64, size: usize| (start..start + size as u64).contains(&address);
    let section = linked.sections.iter().find(|section| is_in(section.address, section.bytes.len())).unwrap();
    let at = (address - section.address) as usize;
    u32::from_le_bytes(section.bytes[at..at + 4].try_into().unwrap())
}

fn way(linked: &Linked, place: u64) -> Way {
    let distance = i64::from((instruction(linked, place) << 6) as i32 >> 4);
    let target = place.wrapping_add_signed(distance);
    let veneers = linked.sections.iter().filter(|section| section.name == ".veneers");
    if !veneers.into_iter().any(|block| (block.address..block.address + block.bytes.len() as u64).contains(&target)) {
        return Way::Direct(target);
    }
    let [bti, page, low, jump] = [0, 4, 8, 12].map(|at| instruction(linked, target + at));
    assert_eq!((bti, page & 0x9f00_001f, jump), (0xd503_245f, 0x9000_0010, 0xd61f_0220));
    let pages = i64::from(((page >> 5 & 0x7_ffff) << 2 | page >> 29 & 3) << 11) as i32 >> 11;
    let page = ((target + 4) & !0xfff).wrapping_add_signed(i64::from(pages) << 12);
    let offset = u64::from(low >> 10 & 0xfff);
    match low & 0xffc0_03ff {
        0x9100_0211 => Way::ByVeneer(page + offset),
        0xf940_0211 => Way::ByVeneerAndSlot(page + offset * 8),
        other => panic!("{other:#x}"),
    }
}

fn address(linked: &Linked, section: &str) -> u64 {
    linked.section(section).address
}

fn veneer_blocks(linked: &Linked) -> usize {
    linked.sections.iter().filter(|section| section.name == ".veneers").count()
}

/// Three sections, `root` in the first and `last` in the last one, which is `distance` bytes after `root` without veneers.
fn three_sections(distance: u64, in_root: &str, in_last: &str) -> Option<Vec<u8>> {
    let (first, second) = (REACH / 2, distance - REACH / 2);
    assembled(&format!(
        "{in_root}\n.org {first}\n.section .text.middle,\"ax\"\n.globl middle\nmiddle: .space {second}\n\
         .section .text.last,\"ax\"\n.globl last\nlast:\n{in_last}\n"
    ))
}

#[test]
fn a_branch_to_another_section_gets_a_veneer_exactly_when_code_is_longer_than_its_reach() {
    // The last instruction that a branch at the start reaches, and the next one.
    for (distance, has_veneer) in [(REACH - 4, false), (REACH, true)] {
        let Some(object) = three_sections(distance, "bl last", "nop") else { return };
        let linked = link(&object, BASE, |_| 0).unwrap();
        let last = address(&linked, ".text.last");
        let expected = if has_veneer { Way::ByVeneer(last) } else { Way::Direct(last) };
        assert_eq!(way(&linked, BASE), expected, "{distance:#x}");
        assert_eq!(veneer_blocks(&linked), usize::from(has_veneer));
        let start = if has_veneer { address(&linked, ".veneers") + 16 } else { BASE + REACH / 2 };
        assert_eq!(address(&linked, ".text.middle"), start, "the veneers are between the sections");
    }
}

#[test]
fn branches_in_both_directions_and_to_other_objects_leave_code_that_is_longer_than_their_reach() {
    // The second branches have addends.
    let (in_root, in_last) =
        ("bl last\nb last + 8\nbl far\nbl near", "bl root\nb root + 4\nbl far\nbl near\nb .text.middle");
    let Some(object) = three_sections(REACH + (16 << 20), in_root, in_last) else { return };
    let (far, near) = (0x7f00_0000_0000, BASE - 0x1000);
    let linked = link(&object, BASE, |name| if name == "far" { far } else { near }).unwrap();
    let (first, last) = (address(&linked, ".text"), address(&linked, ".text.last"));
    assert_eq!(way(&linked, first), Way::ByVeneer(last));
    assert_eq!(way(&linked, first + 4), Way::ByVeneer(last + 8));
    assert_eq!(way(&linked, first + 8), Way::ByVeneerAndSlot(linked.slots["far"]));
    assert_eq!(way(&linked, first + 12), Way::Direct(near), "the symbol itself is in reach");
    assert_eq!(way(&linked, last), Way::ByVeneer(first));
    assert_eq!(way(&linked, last + 4), Way::ByVeneer(first + 4));
    assert_eq!(way(&linked, last + 8), Way::Direct(linked.stubs["far"]), "the stubs are next to the last section");
    assert_eq!(way(&linked, last + 12), Way::Direct(linked.stubs["near"]));
    assert_eq!(way(&linked, last + 16), Way::Direct(address(&linked, ".text.middle")));
    let slot = |name: &str| {
        let got = linked.section(".got");
        let at = (linked.slots[name] - got.address) as usize;
        u64::from_le_bytes(got.bytes[at..at + 8].try_into().unwrap())
    };
    assert_eq!((slot("far"), slot("near")), (far, near));
}

#[test]
fn a_section_that_is_longer_than_a_branch_reaches_has_veneers_at_both_ends() {
    // From each end to the other one, and from the middle, where neither end is in reach.
    let source = |middle: &str| {
        format!(
            "b end\n.org {}\n{middle}\n.org {}\nb root\n.section .text.last,\"ax\"\n.globl end\nend: nop\n",
            136 << 20,
            272 << 20
        )
    };
    let Some(object) = assembled(&source("nop")) else { return };
    let linked = link(&object, BASE, |_| 0).unwrap();
    let (text, end) = (address(&linked, ".text"), address(&linked, ".text.last"));
    assert_eq!(way(&linked, text), Way::ByVeneer(end));
    assert_eq!(way(&linked, text + (272 << 20)), Way::ByVeneer(text));
    assert_eq!(veneer_blocks(&linked), 2);
    let Some(object) = assembled(&source("bl end")) else { return };
    let error = link(&object, BASE, |_| 0).err().unwrap().to_string();
    assert!(error.contains("relocation R_AARCH64_CALL26 out of range (section `.text`, offset 0x8800000"), "{error}");
}

#[test]
fn a_branch_that_only_the_veneers_move_out_of_reach_gets_a_veneer_too() {
    // More than a MiB of veneers. The last branch has its target in reach until they are added.
    const COUNT: u64 = 70_000;
    let branches: String = (0..COUNT).map(|number| format!("bl last + {}\n", number * 4)).collect();
    let (target, place) = (COUNT * 4, COUNT * 4 + COUNT * 16 - 0x8000);
    let in_root = format!("{branches}\n.org {place}\nbl last + {target}\n");
    let Some(object) = three_sections(REACH, &in_root, &format!(".space {}", COUNT * 4 + 4)) else { return };
    let linked = link(&object, BASE, |_| 0).unwrap();
    let last = address(&linked, ".text.last");
    assert!(REACH + target - place < REACH && last + target - (BASE + place) > REACH);
    assert_eq!(way(&linked, BASE + place), Way::ByVeneer(last + target));
    assert_eq!(way(&linked, BASE + 4 * (COUNT - 1)), Way::ByVeneer(last + 4 * (COUNT - 1)));
}

#[test]
fn no_veneers_are_between_sections_that_a_program_walks_over_as_one() {
    let half = REACH / 2 + (4 << 20);
    let Some(object) = assembled(&format!(
        "bl __stop_code\nadr x0, __start_code\n.section code,\"ax\",@progbits,unique,1\nbl last\n.org {half}\n\
         .section code,\"ax\",@progbits,unique,2\nbl root\n.org {half}\n.section .text.last,\"ax\"\n.globl last\nlast: nop\n"
    )) else {
        return;
    };
    let linked = link(&object, BASE, |_| 0).unwrap();
    let parts: Vec<u64> =
        linked.sections.iter().filter(|section| section.name == "code").map(|section| section.address).collect();
    assert_eq!(parts[1] - parts[0], half);
    let last = address(&linked, ".text.last");
    assert_eq!(way(&linked, parts[0]), Way::ByVeneer(last));
}
