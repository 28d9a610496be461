//! The tables are those of `docs/reference/rollups.md`, and objects have what it promises.

#[allow(dead_code, reason = "the other test uses what this one does not")]
mod support;

use isotherm_rollup::schema::Type;
use isotherm_rollup::{Host, Object, Options, Rollup, Rules, Table};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use support::{S, T0, process, read, snapshot};

const PAGE: &str = include_str!("../../../docs/reference/rollups.md");

/// Names of the columns of a table in the page, with the types that it gives.
fn documented(table: Table) -> Vec<(String, Option<&'static str>)> {
    let section = PAGE.split(&format!("\n**{}**", table.name())).nth(1).expect("a section for each table");
    let lines = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let mut columns = Vec::new();
    for line in lines.take_while(|line| line.starts_with('|')) {
        let cell = line.split('|').nth(1).unwrap();
        // "`a`, `b` (text), `c`": a type is that of all names before it in its cell, up to the type before.
        let mut open = columns.len();
        for part in cell.split_inclusive([',', ')']) {
            if let Some(name) = part.split('`').nth(1) {
                columns.push((name.to_owned(), None));
            }
            let kind = ["(text)", "(nullable)", "(`Float64`)"].into_iter().find(|kind| part.contains(kind));
            if let Some(kind) = kind {
                let from = if kind == "(text)" { open.max(columns.len() - names_before(cell, kind)) } else { open };
                columns[from..].iter_mut().for_each(|(_, of)| *of = Some(kind));
                open = columns.len();
            }
        }
    }
    columns
}

/// How many names of a cell a type is of: all of them, unless the first is a key of another type.
fn names_before(cell: &str, kind: &str) -> usize {
    let before = cell.split(kind).next().unwrap();
    before.matches('`').count() / 2
}

#[test]
fn the_page_has_the_columns_in_order() {
    for table in Table::ALL {
        let names: Vec<&str> = table.columns().iter().map(|(name, _)| *name).collect();
        let documented = documented(table);
        let page: Vec<&str> = documented.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, page, "{}", table.name());
        for ((name, kind), (_, stated)) in table.columns().iter().zip(&documented) {
            match stated {
                Some("(nullable)") => assert_eq!(*kind, Type::Nullable, "{name}"),
                Some("(`Float64`)") => assert_eq!(*kind, Type::Float, "{name}"),
                None => assert!(!matches!(kind, Type::Nullable | Type::Float), "{} {name}", table.name()),
                Some(_) => {}
            }
        }
    }
    // What the page calls text.
    let texts = Table::ALL.iter().flat_map(|table| table.columns()).filter(|(_, kind)| *kind == Type::Text);
    let known = [
        "host",
        "hostname",
        "machine_id",
        "boot_id",
        "kernel",
        "version",
        "source",
        "cpu",
        "service",
        "cgroup",
        "labels",
        "kind",
        "action",
        "result",
    ];
    assert!(texts.map(|(name, _)| name).all(|name| known.contains(name)));
}

fn objects(host: &Host) -> Vec<Object> {
    let mut rollup = Rollup::new(host.clone(), Rules::default(), Options::default());
    for n in 0..720 {
        rollup.push(&snapshot(n * 10, n * 10 + 10, vec![process(1, "b", &[(40, n)]), process(2, "a", &[(1, 5)])]));
    }
    rollup.finish().unwrap()
}

#[test]
fn an_object_has_its_schema_metadata_path_and_one_row_group() {
    let host = Host::new("0123456789abcdef0123456789abcdef", "h", "");
    let objects = objects(&host);
    let heat: Vec<&Object> = objects.iter().filter(|object| object.table == Table::Heat).collect();
    assert_eq!(heat.len(), 2, "two hours");
    for (object, hour) in heat.iter().zip(["00", "01"]) {
        let (dir, name) = object.path.rsplit_once('/').unwrap();
        assert_eq!(dir, format!("v1/heat/date=2026-11-01/hour={hour}"));
        let stem = name.strip_suffix(".parquet").unwrap();
        assert!(stem.len() == 32 && stem.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
        let bytes = bytes::Bytes::from(object.bytes.clone());
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
        assert_eq!((builder.metadata().num_row_groups(), object.rows), (1, 24));
        let entries = builder.metadata().file_metadata().key_value_metadata().unwrap();
        let value = |key: &str| entries.iter().find(|entry| entry.key == key).unwrap().value.clone().unwrap();
        let keys = ["isotherm.format", "isotherm.version", "isotherm.table"].map(value);
        assert_eq!(keys, ["isotherm-rollup", "1", "heat"]);
    }
    for object in &objects {
        let schema = read(&object.bytes)[0].schema();
        let (read, stated) = (schema.fields(), object.table.schema());
        for (read, stated) in read.iter().zip(stated.fields()) {
            assert_eq!(
                (read.name(), read.data_type(), read.is_nullable()),
                (stated.name(), stated.data_type(), stated.is_nullable())
            );
        }
    }
    assert_eq!(objects, self::objects(&host), "the same rows, the same bytes and names");
    let other = self::objects(&Host::new("", "h", ""));
    assert!(objects.iter().zip(other).all(|(one, other)| one.path != other.path));
}

#[test]
fn rows_are_sorted_by_service_and_time() {
    let objects = objects(&Host::default());
    let rows = support::rows(&objects[..], Table::Heat);
    let first_hour: Vec<_> =
        rows.iter().take(24).map(|row| (row.text("service").to_owned(), row.get("time"))).collect();
    assert!(first_hour.is_sorted() && first_hour[0] == ("a.service".to_owned(), T0.cast_signed()), "{first_hour:?}");
    assert_eq!(S, 1_000_000_000);
}
