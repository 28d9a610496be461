//! Sizes and times as people write them: `"2 TiB"`, `"100ms"`.

use bytesize::ByteSize;
use isotherm_heat::Ns;
use isotherm_units::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A time in a host file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time(pub Ns);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        let text = String::deserialize(from)?;
        parse_time(&text).map(Time).map_err(D::Error::custom)
    }
}

/// A size in a host file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size(pub Bytes);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        let text = String::deserialize(from)?;
        parse_size(&text).map(Size).map_err(D::Error::custom)
    }
}

/// For `deserialize_with`.
pub(crate) fn ns<'de, D: Deserializer<'de>>(from: D) -> Result<Ns, D::Error> {
    Time::deserialize(from).map(|t| t.0)
}

fn parse_time(text: &str) -> Result<Ns, String> {
    let time = humantime::parse_duration(text)
        .map_err(|e| format!("{text:?} is no time ({e}); write one like \"5ms\", \"2s\" or \"10m\""))?;
    Ns::try_from(time.as_nanos()).map_err(|_| format!("{text:?} is too long: at most 584 years"))
}

fn parse_size(text: &str) -> Result<Bytes, String> {
    // ByteSize reads fractions too ("1.5 GiB") and rounds them to a byte. Sizes that are not whole pages are rejected
    // later.
    text.parse::<ByteSize>()
        .map(|size| Bytes(size.0))
        .map_err(|_| format!("{text:?} is no size; write one like \"64 MiB\", \"2 TiB\" or \"4096\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_read_as_written() {
        assert_eq!(parse_size("2 TiB"), Ok(Bytes(2 << 40)));
        assert_eq!(parse_size("1.5GiB"), Ok(Bytes(3 << 29)));
        assert_eq!(parse_size("4096"), Ok(Bytes(4096)));
        assert_eq!(parse_time("100ms"), Ok(100_000_000));
        assert!(parse_size("much").unwrap_err().contains("\"much\" is no size"));
        assert!(parse_time("5").unwrap_err().contains("write one like"));
        assert!(parse_time("600y").is_err_and(|e| e.contains("too long")));
    }
}
