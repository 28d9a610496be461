//! Small files that stand for a lot: none takes more than 64 MiB of memory beyond what the same command takes on a small file.
//!
//! Recordings are written with the Parquet crate, which packs a million equal rows into a few bytes, and signed as ours.

mod support;

use arrow_array::{ArrayRef, BooleanArray, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use isotherm_heat::RunInfo;
use isotherm_record::schema::Table;
use isotherm_record::{Recording, damo};
use isotherm_rng::Rng;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression as Codec;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use support::{ISOTHERM, Ran, Stage};

const MIB: u64 = 1 << 20;
/// What a small file may take beyond the baseline.
const MOST: u64 = 64 * MIB;
/// The size of file for which that is promised.
const SMALL: u64 = SMALL_LEN as u64;
const SMALL_LEN: usize = 100 << 10;

const WHAT: &str = "python3, to measure peak memory";

/// Runs `isotherm`, and says what its memory came to at the most, in bytes; `None` without Python.
fn measured(stage: &Stage, args: &str) -> Option<(Ran, u64)> {
    const SHIM: &str = "import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print('peak KiB:', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code if code >= 0 else 128 - code)";
    let python = ["/usr/bin/python3", "/usr/local/bin/python3"].into_iter().find(|p| Path::new(p).exists())?;
    let mut command = Command::new(python);
    command.args(["-c", SHIM, ISOTHERM]).args(args.split_whitespace());
    let ran = stage.start(command).end();
    let peak = ran.err.lines().find_map(|line| line.strip_prefix("peak KiB: ")).expect("the shim says it");
    let peak = peak.parse::<u64>().unwrap() << 10;
    Some((ran, peak))
}

/// Runs a command on a small file and on a bomb, and checks what the second takes more. Returns how it ended.
#[track_caller]
fn assert_bounded(stage: &Stage, baseline: &str, bomb: &str) -> Option<Ran> {
    let (_, usual) = measured(stage, baseline)?;
    let (ran, peak) = measured(stage, bomb)?;
    let more = peak.saturating_sub(usual);
    eprintln!("{bomb}: {} KiB more than {} KiB", more >> 10, usual >> 10);
    assert!(more < MOST, "{bomb}: {} MiB more\n{ran}", more / MIB);
    assert!(matches!(ran.code, Some(0..=2)), "{bomb}\n{ran}");
    Some(ran.never_says("panicked"))
}

// --- Recordings

/// What a table of a made-up recording holds: how many rows, alike but for some columns.
struct Rows {
    rows: usize,
    ints: fn(&str, usize) -> i64,
    text: String,
}

impl Rows {
    fn alike(rows: usize) -> Rows {
        Rows { rows, ints: |name, _| usual(name), text: String::new() }
    }
}

/// Values that make one target of one snapshot with nothing in it.
fn usual(column: &str) -> i64 {
    match column {
        "pid" | "start_ticks" | "targets" | "code" => 1,
        "end_addr" => 4096,
        _ => 0,
    }
}

fn batch(table: Table, from: usize, n: usize, rows: &Rows) -> RecordBatch {
    let schema = table.schema();
    let column = |field: &arrow_schema::Field| -> ArrayRef {
        let name = field.name().as_str();
        match field.data_type() {
            arrow_schema::DataType::Int64 => {
                Arc::new((from..from + n).map(|i| (rows.ints)(name, i)).collect::<Int64Array>())
            }
            arrow_schema::DataType::Float64 => Arc::new(Float64Array::from(vec![0.0; n])),
            arrow_schema::DataType::Float32 => Arc::new(Float32Array::from(vec![0.0; n])),
            arrow_schema::DataType::Boolean => Arc::new(BooleanArray::from(vec![false; n])),
            _ => {
                let text = match name {
                    "granularity" => "page",
                    "kind" => "temperature",
                    _ => &rows.text,
                };
                Arc::new(StringArray::from(vec![text; n]))
            }
        }
    };
    let columns = schema.fields().iter().map(|field| column(field)).collect();
    RecordBatch::try_new(schema, columns).unwrap()
}

fn write_table(dir: &Path, table: Table, rows: &Rows) {
    let run = serde_json::to_string(&RunInfo::default()).unwrap();
    let keys = [
        ("isotherm.format", "isotherm-recording"),
        ("isotherm.version", "1"),
        ("isotherm.run", &run),
        ("isotherm.table", table.name()),
        ("isotherm.first_snapshot", "0"),
        ("isotherm.snapshots", "1"),
        ("isotherm.finished", "true"),
    ];
    let keys = keys.map(|(key, value)| KeyValue::new(key.to_owned(), value.to_owned())).to_vec();
    let properties = WriterProperties::builder()
        .set_compression(Codec::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_dictionary_page_size_limit(64 << 20)
        .set_data_page_row_count_limit(1 << 30)
        .set_max_row_group_row_count(Some(1 << 30))
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(keys))
        .build();
    let file = File::create(dir.join(format!("{}-000001.parquet", table.name()))).unwrap();
    let mut writer = ArrowWriter::try_new(file, table.schema(), Some(properties)).unwrap();
    // Long texts are in memory here, too.
    let most = ((8 << 20) / (rows.text.len() + 64)).max(1);
    let mut from = 0;
    while from < rows.rows {
        let n = most.min(rows.rows - from);
        writer.write(&batch(table, from, n, rows)).unwrap();
        from += n;
    }
    writer.close().unwrap();
}

/// A recording of one snapshot with one target, of which one table is another.
fn recording(dir: &Path, odd: Table, rows: &Rows) -> u64 {
    recording_of(dir, &[(odd, rows)])
}

/// The same with several tables that are others.
fn recording_of(dir: &Path, odd: &[(Table, &Rows)]) -> u64 {
    fs::create_dir(dir).unwrap();
    for table in Table::ALL {
        let few = matches!(table, Table::Snapshots | Table::Targets);
        let usual = Rows::alike(usize::from(few));
        let rows = odd.iter().find(|(other, _)| *other == table).map_or(&usual, |(_, rows)| rows);
        write_table(dir, table, rows);
    }
    let sizes = fs::read_dir(dir).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
    sizes.sum()
}

fn tiny(stage: &Stage) {
    recording(&stage.path("tiny"), Table::Regions, &Rows::alike(0));
}

#[test]
fn a_recording_of_equal_rows_takes_no_more_than_64_mib() {
    let stage = Stage::new();
    tiny(&stage);
    let bombs = [
        ("targets", Table::Targets, Rows::alike(1_000_000)),
        ("regions", Table::Regions, Rows::alike(6_000_000)),
        ("mappings", Table::Mappings, Rows::alike(6_000_000)),
        ("heat", Table::Heat, Rows::alike(6_000_000)),
        // Rows of many targets that are not there: histograms for each.
        (
            "strangers",
            Table::Heat,
            Rows { ints: |name, i| if name == "pid" { i as i64 % 12_000 } else { usual(name) }, ..Rows::alike(12_000) },
        ),
        // One name of 400 KiB, twenty thousand times.
        ("names", Table::Mappings, Rows { text: "n".repeat(400 << 10), ..Rows::alike(20_000) }),
        ("comms", Table::Targets, Rows { text: "n".repeat(400 << 10), ..Rows::alike(20_000) }),
    ];
    for (name, table, rows) in bombs {
        let size = recording(&stage.path(name), table, &rows);
        assert!(size <= SMALL, "{name}: {size}");
        for command in ["report access", "report heatmap", "report wss -d 1s --replay"] {
            let Some(ran) = assert_bounded(&stage, &format!("{command} tiny"), &format!("{command} {name}")) else {
                return support::skip(WHAT);
            };
            let ran = ran.ended(1);
            if !matches!(name, "heat" | "strangers") {
                ran.says(name).says("ISOTHERM_MAX_MEMORY");
            }
        }
    }
}

#[test]
fn a_small_recording_that_is_as_large_as_allowed_is_reported_in_no_more_than_64_mib() {
    const REGIONS: usize = 60_000;
    let stage = Stage::new();
    tiny(&stage);
    let targets =
        Rows { ints: |name, _| if name == "regions" { REGIONS as i64 } else { usual(name) }, ..Rows::alike(1) };
    let regions = Rows {
        ints: |name, i| match name {
            "start_addr" => i as i64 * 8192,
            "end_addr" => i as i64 * 8192 + 4096,
            _ => usual(name),
        },
        ..Rows::alike(REGIONS)
    };
    let size = recording_of(&stage.path("most"), &[(Table::Targets, &targets), (Table::Regions, &regions)]);
    eprintln!("{size} bytes");
    for command in [
        "report access --json",
        "report heatmap",
        "report heatmap -o m.html",
        "report wss --json",
        "report wss -d 1s --replay",
    ] {
        let Some(ran) = assert_bounded(&stage, &format!("{command} tiny"), &format!("{command} most")) else {
            return support::skip(WHAT);
        };
        ran.ended(0);
    }
}

/// The thrift of a page header that says it comes to `uncompressed` bytes, with `dictionary` entries if it is one.
fn page_header(uncompressed: u64, compressed: u64, dictionary: Option<u64>, encoding: u64) -> Vec<u8> {
    fn int(into: &mut Vec<u8>, n: u64) {
        into.push(0x15);
        let mut zigzag = n << 1;
        while zigzag >= 0x80 {
            into.push(zigzag.to_le_bytes()[0] | 0x80);
            zigzag >>= 7;
        }
        into.push(zigzag.to_le_bytes()[0]);
    }
    let mut header = Vec::new();
    int(&mut header, if dictionary.is_some() { 2 } else { 0 });
    int(&mut header, uncompressed);
    int(&mut header, compressed);
    // Field 7 for a dictionary, 5 for data, each a struct.
    header.push(if dictionary.is_some() { 0x4c } else { 0x2c });
    int(&mut header, dictionary.unwrap_or(1));
    int(&mut header, encoding);
    if dictionary.is_none() {
        int(&mut header, 3);
        int(&mut header, 3);
    }
    header.extend([0, 0]);
    header
}

#[test]
fn page_headers_that_lie_are_found_out_before_they_are_believed() {
    let stage = Stage::new();
    tiny(&stage);
    // Enough different rows for pages to be longer than a header.
    let rows =
        Rows { ints: |name, i| if name == "snapshot" { 0 } else { i as i64 * 7919 % 4096 }, ..Rows::alike(2000) };
    for (name, says, dictionary, encoding) in [
        ("huge-page", 2_000_000_000, None, 0),
        ("huge-dictionary-page", 2_000_000_000, Some(1), 0),
        ("many-entries", 400, Some(2_000_000_000), 0),
        ("deltas", 400, None, 7),
    ] {
        let dir = stage.path(name);
        recording(&dir, Table::Regions, &rows);
        let path = dir.join("regions-000001.parquet");
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let column = reader.metadata().row_group(0).column(3).clone();
        assert_eq!(column.column_path().string(), "start_addr");
        let (start, length) = column.byte_range();
        let header = page_header(says, 0, dictionary, encoding);
        let header = page_header(says, length - header.len() as u64 - 2, dictionary, encoding);
        let mut bytes = fs::read(&path).unwrap();
        let start = usize::try_from(start).unwrap();
        bytes[start..start + header.len()].copy_from_slice(&header);
        fs::write(&path, bytes).unwrap();
        let Some(ran) = assert_bounded(&stage, "report access tiny", &format!("report access {name}")) else {
            return support::skip(WHAT);
        };
        ran.ended(1).says("start_addr").says("damaged");
    }
}

// --- Files of damo

fn zlib(path: &Path, parts: &[(&str, usize)]) -> u64 {
    let mut out = ZlibEncoder::new(File::create(path).unwrap(), Compression::best());
    for (text, times) in parts {
        let chunk = text.repeat((1 << 16) / text.len() + 1);
        let per_chunk = chunk.len() / text.len();
        for _ in 0..times / per_chunk {
            out.write_all(chunk.as_bytes()).unwrap();
        }
        out.write_all(text.repeat(times % per_chunk).as_bytes()).unwrap();
    }
    out.finish().unwrap().metadata().unwrap().len()
}

const BEGIN: &str = r#"[{"target_id":5,"intervals":{"sample_us":5000,"aggr_us":100000},"snapshots":["#;

#[test]
fn a_file_of_damo_that_unpacks_to_a_lot_takes_no_more_than_64_mib() {
    let stage = Stage::new();
    let region = r#"{"start":0,"end":0}"#;
    let snapshot = r#"{"start_time":0,"end_time":0,"regions":[]}"#;
    let one = format!(r#"{{"start_time":1,"end_time":9,"regions":[{region}]}}]}}]"#);
    zlib(&stage.path("tiny"), &[(BEGIN, 1), (&one, 1)]);
    let bombs: [(&str, Vec<(&str, usize)>); 7] = [
        (
            "regions",
            vec![
                (BEGIN, 1),
                (r#"{"start_time":0,"end_time":1,"regions":["#, 1),
                (r#"{"start":0,"end":0},"#, 2_000_000),
                (region, 1),
                ("]}]}]", 1),
            ],
        ),
        (
            "snapshots",
            vec![(BEGIN, 1), (r#"{"start_time":0,"end_time":0,"regions":[]},"#, 600_000), (snapshot, 1), ("]}]", 1)],
        ),
        (
            "records",
            vec![("[", 1), (r#"{"target_id":1,"snapshots":[]},"#, 900_000), (r#"{"target_id":1,"snapshots":[]}]"#, 1)],
        ),
        ("values", vec![(r#"[{"target_id":1,"snapshots":[],"isotherm":["#, 1), ("0,", 20_000_000), ("0]}]", 1)]),
        ("maps", vec![(r#"[{"target_id":1,"snapshots":[],"isotherm":["#, 1), (r#"{"":0},"#, 4_000_000), ("0]}]", 1)]),
        ("key", vec![(r#"[{"target_id":1,"snapshots":[],""#, 1), ("k", 60_000_000), (r#"":0}]"#, 1)]),
        ("quotes", vec![(r#"[{"target_id":1,"snapshots":[],""#, 1), (r#"\""#, 12_000_000), (r#"":0}]"#, 1)]),
    ];
    for (name, parts) in bombs {
        let size = zlib(&stage.path(name), &parts);
        assert!(size <= SMALL, "{name}: {size}");
        for command in ["report access", "convert --overwrite"] {
            let output = if command.starts_with("convert") { " out" } else { "" };
            let (usual, bomb) = (format!("{command} tiny{output}"), format!("{command} {name}{output}"));
            let Some(ran) = assert_bounded(&stage, &usual, &bomb) else { return support::skip(WHAT) };
            let why = if matches!(name, "key" | "quotes") { "a name or number in it" } else { "ISOTHERM_MAX_MEMORY" };
            ran.ended(1).says(name).says(why);
        }
    }
}

// --- Settings and descriptions of hosts

/// Commands that read settings, or the description of a host, from a file to be named.
const READS_TOML: &[&str] = if cfg!(feature = "model") { &["report wss -d 1s --model", "run -c"] } else { &["run -c"] };

#[test]
fn toml_takes_no_more_than_64_mib_whatever_it_counts_to() {
    let stage = Stage::new();
    let process = "memory = \"1 GiB\"\n[[process]]\npid = 1\ncomm = \"x\"\n";
    fs::write(stage.path("tiny.toml"), format!("{process}[[process.area]]\nsize = \"1 MiB\"\nheat = \"never\"\n"))
        .unwrap();
    let fill = |begin: &str, text: &str, end: &str| {
        format!("{begin}{}{end}", text.repeat((SMALL_LEN - begin.len() - end.len()) / text.len()))
    };
    let area = "[[process.area]]\nsize = \"1 MiB\"\nheat = \"never\"\n";
    let bombs = [
        ("count.toml", format!("{process}count = 4000000000\n{area}")),
        ("areas.toml", fill(&format!("{process}count = 4000000\n"), area, "")),
        (
            "names.toml",
            format!(
                "{process}count = 4000000\n[[process.area]]\nsize = \"1 MiB\"\nheat = \"never\"\nname = \"{}\"\n",
                "n".repeat(90_000)
            ),
        ),
        ("tables.toml", fill("a = [", "{b=1},", "]")),
        ("lists.toml", fill("a = [", "[],", "]")),
        ("deep.toml", format!("a = {}", "[".repeat(99_000))),
        ("headers.toml", (0..11_000).map(|i| format!("[a{i:x}]\n")).collect()),
    ];
    for (name, text) in bombs {
        assert!(text.len() as u64 <= SMALL, "{name}: {}", text.len());
        fs::write(stage.path(name), &text).unwrap();
        for command in READS_TOML {
            let (usual, bomb) = (format!("{command} tiny.toml"), format!("{command} {name}"));
            let Some(ran) = assert_bounded(&stage, &usual, &bomb) else { return support::skip(WHAT) };
            ran.ended(1).says(name);
        }
    }
    if cfg!(feature = "model") {
        stage.isotherm("report wss -d 1s --model count.toml").ended(1).says("ISOTHERM_MAX_MEMORY").says("count");
    }
}

// --- What is honest

#[test]
fn the_limit_can_be_set_and_has_to_make_sense() {
    let stage = Stage::new().with_env("ISOTHERM_MAX_MEMORY", "1GiB");
    let size = recording(&stage.path("many"), Table::Regions, &Rows { rows: 300_000, ..Rows::alike(0) });
    assert!(size <= SMALL);
    // With room, it is read to the end: what is wrong is another thing.
    stage.isotherm("report access many").ended(1).says("0 regions expected, 300000 found");
    let stage = stage.with_env("ISOTHERM_MAX_MEMORY", "much");
    stage.isotherm("report access many").ended(2).says("ISOTHERM_MAX_MEMORY=much").says("64MiB");
}

// --- Anything else

/// Changes some bytes, in a way that follows from the generator.
fn mutate(bytes: &mut [u8], random: &mut Rng) {
    for _ in 0..=random.below(8) {
        let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
        let some = usize::try_from(random.below(8)).unwrap().min(bytes.len() - at);
        let with = [0, 0xff, 0x7f, 0x80, random.next_u64().to_le_bytes()[0]][usize::try_from(random.below(5)).unwrap()];
        bytes[at..at + some].fill(with);
    }
}

#[test]
fn changed_bytes_of_files_that_stand_for_a_lot_are_data_or_an_error() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(isotherm_sys::random::seed);
    eprintln!("SEED={seed}");
    let mut random = Rng::new(seed);
    let stage = Stage::new();
    let dir = stage.path("rec");
    let rows = Rows { ints: |name, i| if name == "snapshot" { 0 } else { i as i64 % 4096 }, ..Rows::alike(9000) };
    recording(&dir, Table::Regions, &rows);
    for table in Table::ALL {
        let path = dir.join(format!("{}-000001.parquet", table.name()));
        let whole = fs::read(&path).unwrap();
        for _ in 0..80 {
            let mut changed = whole.clone();
            mutate(&mut changed, &mut random);
            fs::write(&path, changed).unwrap();
            let _ = Recording::open(&dir).and_then(|r| r.read_all());
        }
        fs::write(&path, whole).unwrap();
    }
    let text = format!(r#"{BEGIN}{{"start_time":1,"end_time":9,"regions":[{{"start":0,"end":4096}}]}}]}}]"#);
    for name in ["text", "zlib"] {
        let path = stage.path(name);
        if name == "zlib" {
            zlib(&path, &[(&text, 1)]);
        } else {
            fs::write(&path, &text).unwrap()
        }
        let whole = fs::read(&path).unwrap();
        for _ in 0..200 {
            let mut changed = whole.clone();
            mutate(&mut changed, &mut random);
            fs::write(&path, changed).unwrap();
            let _ = damo::read(&path);
        }
    }
}
