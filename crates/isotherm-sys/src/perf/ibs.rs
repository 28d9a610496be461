//! Decodes the memory access in an IBS op sample from the raw registers that the kernel adds to it.
//!
//! IBS marks every nth operation of any kind, so most samples are no access at all, and the address of one that is may
//! be unknown. The registers show both. The sample's own address field does not distinguish 0 from unknown. Pure: any
//! bytes give a result.

/// An access to memory by a sampled operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IbsAccess {
    /// The virtual address, where it is known.
    pub linear: Option<u64>,
    /// The physical address, where it is known.
    pub physical: Option<u64>,
    /// It reads. An operation may read and write, for example with a lock prefix.
    pub load: bool,
    /// It writes.
    pub store: bool,
}

/// Before the registers: the capabilities of the CPU's IBS.
const CAPS: usize = size_of::<u32>();
// Registers in the order of the kernel: IBS_OP_CTL, RIP, DATA, DATA2, DATA3, DC_LIN_AD, DC_PHYS_AD, and more on some
// CPUs.
const DATA3: usize = 4;
const LINEAR: usize = 5;
const PHYSICAL: usize = 6;
// Bits of DATA3.
const LOAD: u64 = 1 << 0;
const STORE: u64 = 1 << 1;
const LINEAR_VALID: u64 = 1 << 17;
const PHYSICAL_VALID: u64 = 1 << 18;

/// Decodes the raw part of a sample of `ibs_op` ([`Fields::RAW`](crate::perf::Fields::RAW)). `None` if the operation
/// did not access memory, or if this is no such sample.
pub fn decode(raw: &[u8]) -> Option<IbsAccess> {
    // All three are read first, so that a truncated record gives `None` instead of an access without addresses.
    let (data3, linear, physical) = (register(raw, DATA3)?, register(raw, LINEAR)?, register(raw, PHYSICAL)?);
    let has = |bit: u64| data3 & bit != 0;
    (has(LOAD) || has(STORE)).then(|| IbsAccess {
        linear: has(LINEAR_VALID).then_some(linear),
        physical: has(PHYSICAL_VALID).then_some(physical),
        load: has(LOAD),
        store: has(STORE),
    })
}

fn register(raw: &[u8], index: usize) -> Option<u64> {
    let at = CAPS + index * size_of::<u64>();
    Some(u64::from_ne_bytes(*raw.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A sample with seven registers, as the kernel writes it.
    fn sample(data3: u64, linear: u64, physical: u64) -> Vec<u8> {
        let mut raw = 0x1bff_u32.to_ne_bytes().to_vec();
        for register in [0x0000_0042_000e_0fff, 0x40_1136, 0x1_0001, 0x2, data3, linear, physical] {
            raw.extend(u64::to_ne_bytes(register));
        }
        raw
    }

    #[test]
    fn a_load_has_its_addresses() {
        // Latency 0x35 in bits 32 to 47, a miss in bit 7, both addresses valid, a load.
        let raw = sample(0x0035_0006_0081, 0x7f12_3456_7890, 0x2_3456_7890);
        let access =
            IbsAccess { linear: Some(0x7f12_3456_7890), physical: Some(0x2_3456_7890), load: true, store: false };
        assert_eq!(decode(&raw), Some(access));
        // Newer processors append the branch target and DATA4.
        let longer = [raw.clone(), vec![0xff; 16]].concat();
        assert_eq!(decode(&longer), Some(access));
        for len in 0..raw.len() {
            assert_eq!(decode(&raw[..len]), None, "cut at {len}");
        }
    }

    #[test]
    fn an_address_counts_only_if_it_is_valid() {
        let store = |data3| decode(&sample(data3, 0x1000, 0x2000)).map(|a| (a.load, a.store, a.linear, a.physical));
        assert_eq!(store(0x2), Some((false, true, None, None)));
        assert_eq!(store(0x2_0002), Some((false, true, Some(0x1000), None)));
        assert_eq!(store(0x4_0002), Some((false, true, None, Some(0x2000))));
        assert_eq!(store(0x6_0003), Some((true, true, Some(0x1000), Some(0x2000))), "reads and writes");
    }

    #[test]
    fn an_operation_without_an_access_is_none() {
        assert_eq!(decode(&sample(0, 0x1000, 0x2000)), None);
        assert_eq!(decode(&sample(0x6_0000, 0x1000, 0x2000)), None, "addresses left over from before");
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(raw in prop::collection::vec(any::<u8>(), 0..120)) {
            let access = decode(&raw);
            prop_assert!(raw.len() >= 60 || access.is_none());
            if let Some(access) = access {
                prop_assert!(access.load || access.store);
                let there = |address: Option<u64>| address.is_none_or(|a| raw.windows(8).any(|w| w == a.to_ne_bytes()));
                prop_assert!(there(access.linear) && there(access.physical));
            }
        }
    }
}
