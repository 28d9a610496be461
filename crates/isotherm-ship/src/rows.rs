//! Rows of snapshots, and objects of rows: `isotherm-rollup` behind the [`Roll`] of a shipper.
//!
//! The rollup keeps no rows here: what is kept is in the spool, and objects are made of that alone. So an object is the same whether or not
//! the program was killed since its first row.
//!
//! The rows of five minutes are one record of the spool, whatever the number of their tables: `length (u32), RowBatch` for each.

use crate::shipper::{Batch, Failed, HOUR_NS, Roll};
use crate::spool::{Header, Made};
use crate::thin::Thin;
use anyhow::Context as _;
use isotherm_rollup::objects::Object;
use isotherm_rollup::service::Rules;
use isotherm_rollup::time::INTERVAL_NS;
use isotherm_rollup::{Host, Options, Rollup, RowBatch};
use isotherm_stream::Snapshot;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Rows of this host.
#[derive(Debug)]
pub struct Rows {
    rollup: Rollup,
    thin: Thin,
    host: String,
    boot: String,
}

impl Rows {
    /// Rows of a host from `after_unix_ns` on, by these rules for names of services. Snapshots that come more often than `every` are joined.
    pub fn new(host: Host, rules: Rules, after_unix_ns: u64, every: Duration) -> Rows {
        let (key, boot) = (host.key.clone(), host.boot_id.clone());
        let options = Options { after_unix_ns, ..Options::default() };
        let thin = Thin::new(u64::try_from(every.as_nanos()).unwrap_or(u64::MAX));
        Rows { rollup: Rollup::new(host, rules, options), thin, host: key, boot }
    }

    /// Names services by other rules from the next snapshot on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rollup.set_rules(rules);
    }

    /// A batch for each interval.
    fn batches(&self, rows: Vec<RowBatch>) -> Result<Vec<Batch>, String> {
        let mut by_time: BTreeMap<u64, Vec<RowBatch>> = BTreeMap::new();
        for batch in rows {
            by_time.entry(u64::try_from(batch.time_s()).unwrap_or(0)).or_default().push(batch);
        }
        by_time.into_iter().map(|(time_s, tables)| self.batch(time_s, &tables)).collect()
    }

    fn batch(&self, time_s: u64, tables: &[RowBatch]) -> Result<Batch, String> {
        let start_ns = time_s.saturating_mul(1_000_000_000);
        let end_unix_ns = start_ns.saturating_add(INTERVAL_NS);
        let header = Header { host: self.host.clone(), boot: self.boot.clone(), hour: start_ns / HOUR_NS };
        Ok(Batch { header, ends_hour: end_unix_ns.is_multiple_of(HOUR_NS), end_unix_ns, bytes: to_bytes(tables)? })
    }
}

impl Roll for Rows {
    fn push(&mut self, snapshot: Snapshot) -> Result<Vec<Batch>, String> {
        self.thin.add(snapshot).iter().for_each(|snapshot| self.rollup.push(snapshot));
        // By the snapshots alone: what ends by the clock is closed from time to time.
        self.closed(0)
    }

    fn closed(&mut self, now_unix_ns: u64) -> Result<Vec<Batch>, String> {
        self.thin.take_old(now_unix_ns).iter().for_each(|snapshot| self.rollup.push(snapshot));
        let rows = self.rollup.take_rows(now_unix_ns);
        self.batches(rows)
    }

    fn lost(&mut self, snapshots: u64) {
        self.thin.take().iter().for_each(|snapshot| self.rollup.push(snapshot));
        self.rollup.lost(snapshots);
    }

    fn finish(&mut self) -> Result<Vec<Batch>, String> {
        self.thin.take().iter().for_each(|snapshot| self.rollup.push(snapshot));
        let rows = self.rollup.finish_rows();
        self.batches(rows)
    }

    fn objects(_: u64, header: &Header, batches: Vec<Vec<u8>>) -> Result<Vec<Made>, Failed> {
        let mut rows = Vec::new();
        for batch in batches {
            rows.extend(from_bytes(&batch).map_err(Failed::Batches)?);
        }
        let host = Host { key: header.host.clone(), boot_id: header.boot.clone(), ..Host::default() };
        let objects = Object::all_of(&host, &rows).map_err(|error| Failed::Batches(error.to_string()))?;
        Ok(objects.into_iter().map(|object| Made { path: object.path, bytes: object.bytes }).collect())
    }

    fn check(batch: &[u8]) -> Result<(), String> {
        from_bytes(batch).map(drop)
    }
}

fn to_bytes(tables: &[RowBatch]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for table in tables {
        let table = table.to_bytes().map_err(|error| error.to_string())?;
        let length = u32::try_from(table.len()).map_err(|_| format!("{} bytes of rows", table.len()))?;
        bytes.extend(length.to_le_bytes());
        bytes.extend(table);
    }
    Ok(bytes)
}

fn from_bytes(mut bytes: &[u8]) -> Result<Vec<RowBatch>, String> {
    let mut tables = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|error| error.to_string())?;
        let (table, rest) = rest.split_at_checked(length).ok_or("a batch that is cut off")?;
        tables.push(RowBatch::from_bytes(table.to_vec()).map_err(|error| error.to_string())?);
        bytes = rest;
    }
    if bytes.is_empty() { Ok(tables) } else { Err("a batch that is cut off".into()) }
}

/// Reads rules for the names of services; there are none without a file.
pub fn read_rules(path: Option<&Path>) -> anyhow::Result<Rules> {
    let Some(path) = path else { return Ok(Rules::default()) };
    let doing = || format!("read the rules of {}", path.display());
    let text = std::fs::read_to_string(path).with_context(doing)?;
    Rules::from_toml(&text).with_context(doing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_heat::Histogram;
    use isotherm_stream::{HostRow, ProcessRow};

    const SECOND: u64 = 1_000_000_000;
    const EVERY: Duration = Duration::from_secs(30);
    const START: u64 = 500_000 * HOUR_NS;

    fn host() -> Host {
        Host::new("0123456789abcdef0123456789abcdef", "db-1", "11111111222243338444555555555555")
    }

    /// A window of a minute that ends `minute` minutes after the hour, with some hot pages.
    fn snapshot(minute: u64) -> Snapshot {
        let end = START + minute * 60 * SECOND;
        let host = HostRow {
            start_unix_ns: end - 60 * SECOND,
            end_unix_ns: end,
            hostname: "db-1".into(),
            elapsed_ns: minute * 60 * SECOND,
            ..HostRow::default()
        };
        let process = ProcessRow {
            pid: 42,
            start_ticks: 7,
            comm: "redis".into(),
            cgroup: "/system.slice/redis.service".into(),
            heat: Histogram::from(vec![(20, 1000)]),
            ..ProcessRow::default()
        };
        Snapshot { host, processes: vec![process], ..Snapshot::default() }
    }

    fn batches(rows: &mut Rows, minutes: std::ops::RangeInclusive<u64>) -> Vec<Batch> {
        minutes.flat_map(|minute| rows.push(snapshot(minute)).unwrap()).collect()
    }

    #[test]
    fn an_hour_of_snapshots_is_twelve_batches_and_an_object_for_each_table_with_rows() {
        let mut rows = Rows::new(host(), Rules::default(), 0, EVERY);
        let mut all = batches(&mut rows, 1..=60);
        assert_eq!(all.len(), 11, "the last five minutes may go on");
        all.extend(rows.closed(START + HOUR_NS + 60 * SECOND).unwrap());
        assert_eq!(all.iter().map(|batch| batch.ends_hour).collect::<Vec<_>>(), [vec![false; 11], vec![true]].concat());
        assert_eq!(all[0].header, Header { host: host().key, boot: host().boot_id, hour: 500_000 });
        assert_eq!((all[0].end_unix_ns, all[11].end_unix_ns), (START + 300 * SECOND, START + HOUR_NS));
        let bytes: Vec<Vec<u8>> = all.iter().map(|batch| batch.bytes.clone()).collect();
        let made = Rows::objects(0, &all[0].header, bytes.clone()).unwrap();
        let tables: Vec<&str> = made.iter().map(|object| object.path.split('/').nth(1).unwrap()).collect();
        assert_eq!(tables, ["hosts", "wss", "heat"]);
        assert!(made.iter().all(|object| object.path.contains("/date=2027-01-15/hour=08/")), "{:?}", made[0].path);
        assert_eq!(made, Rows::objects(9, &all[0].header, bytes).unwrap(), "the same again");
    }

    #[test]
    fn windows_of_a_second_make_the_rows_of_windows_of_a_minute() {
        // The same memory all the time, so that the means do not depend on where it is sampled.
        let windows = |length_s: u64| {
            let mut rows = Rows::new(host(), Rules::default(), 0, EVERY);
            let mut batches = Vec::new();
            for end_s in (length_s..=660).step_by(usize::try_from(length_s).unwrap()) {
                let mut window = snapshot(1);
                window.host.start_unix_ns = START + (end_s - length_s) * SECOND;
                window.host.end_unix_ns = START + end_s * SECOND;
                window.host.elapsed_ns = end_s * SECOND;
                batches.extend(rows.push(window).unwrap());
            }
            let header = batches[0].header.clone();
            let made = Rows::objects(0, &header, batches.into_iter().map(|batch| batch.bytes).collect()).unwrap();
            made.into_iter().find(|object| object.path.contains("/heat/")).unwrap().bytes
        };
        assert_eq!(windows(1), windows(60));
    }

    #[test]
    fn what_was_kept_before_a_restart_is_not_covered_again() {
        let mut rows = Rows::new(host(), Rules::default(), 0, EVERY);
        let mut first = batches(&mut rows, 1..=7);
        first.extend(rows.finish().unwrap());
        assert_eq!(first.len(), 2, "five minutes, and two of the next");
        let mut rows = Rows::new(host(), Rules::default(), first[1].end_unix_ns, EVERY);
        let mut second = batches(&mut rows, 8..=16);
        second.extend(rows.finish().unwrap());
        let ends: Vec<u64> = second.iter().map(|batch| (batch.end_unix_ns - START) / (60 * SECOND)).collect();
        assert_eq!(ends, [15, 20]);
    }

    #[test]
    fn damaged_batches_are_refused() {
        let mut rows = Rows::new(host(), Rules::default(), 0, EVERY);
        let batch = batches(&mut rows, 1..=6).remove(0);
        for cut in [1, 3, batch.bytes.len() / 2, batch.bytes.len() - 1] {
            let objects = Rows::objects(0, &batch.header, vec![batch.bytes[..cut].to_vec()]);
            assert!(matches!(objects, Err(Failed::Batches(_))), "cut at {cut}");
        }
        assert!(Rows::objects(0, &batch.header, vec![]).unwrap().is_empty());
    }

    #[test]
    fn rules_of_a_file_name_services() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules.toml");
        std::fs::write(&path, "interval = \"5s\"\n[[service]]\nmatch = \"redis\"\nname = \"cache\"\n").unwrap();
        let rules = read_rules(Some(&path)).unwrap();
        assert_eq!(&*rules.service("/system.slice/redis.service", "x").name, "cache");
        std::fs::write(&path, "[[service]]\nmatch = \"(\"\nname = \"cache\"\n").unwrap();
        assert!(format!("{:#}", read_rules(Some(&path)).unwrap_err()).contains("rules.toml"));
        assert!(read_rules(Some(&dir.path().join("none"))).is_err());
    }
}
