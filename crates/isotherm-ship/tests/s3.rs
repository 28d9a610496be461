//! Tests with a server of the S3 protocol, which the feature `aws` takes.

#[cfg(feature = "aws")]
#[path = "s3/all.rs"]
mod all;

#[cfg(not(feature = "aws"))]
#[test]
fn rows_are_in_the_store_once() {
    println!("skipped: needs the feature aws (cargo test -p isotherm-ship --features aws --test s3)");
}
