//! Stores beyond this machine, each by a feature: `aws`, `gcp`, `azure`.

use super::Settings;
use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use std::sync::Arc;
use std::time::Duration;

/// The schemes that this program was built with.
pub const SCHEMES: &[&str] = &[
    #[cfg(feature = "aws")]
    "s3",
    #[cfg(feature = "gcp")]
    "gs",
    #[cfg(feature = "azure")]
    "az",
];

/// A store, and the path within it that comes before all objects.
type Opened = Result<(Arc<dyn ObjectStore>, ObjectPath), String>;

/// Opens a store by its address, which `To::parse` has checked.
#[cfg(feature = "remote")]
pub fn open(url: &str, settings: &Settings, timeout: Duration) -> Opened {
    // Fails if there is one already, which is then the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let prefix = url.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, prefix)| prefix);
    let prefix = ObjectPath::parse(prefix.trim_matches('/')).map_err(|error| error.to_string())?;
    let store = match url.split_once("://").map_or("", |(scheme, _)| scheme) {
        #[cfg(feature = "aws")]
        "s3" => built!(object_store::aws::AmazonS3Builder, url, settings, timeout),
        #[cfg(feature = "gcp")]
        "gs" => built!(object_store::gcp::GoogleCloudStorageBuilder, url, settings, timeout),
        #[cfg(feature = "azure")]
        "az" => built!(object_store::azure::MicrosoftAzureBuilder, url, settings, timeout),
        _ => return Err("this program was built without it".into()),
    };
    Ok((store?, prefix))
}

#[cfg(not(feature = "remote"))]
pub fn open(_: &str, _: &Settings, _: Duration) -> Opened {
    Err("this program was built without it".into())
}

/// How it connects. Settings may change it later, such as `AWS_ALLOW_HTTP`.
#[cfg(feature = "remote")]
fn client(timeout: Duration) -> object_store::ClientOptions {
    let agent = http_agent();
    let options = object_store::ClientOptions::new().with_timeout(timeout).with_connect_timeout(timeout.min(CONNECT));
    match agent {
        Some(agent) => options.with_user_agent(agent),
        None => options,
    }
}

#[cfg(feature = "remote")]
const CONNECT: Duration = Duration::from_secs(10);

#[cfg(feature = "remote")]
fn http_agent() -> Option<reqwest::header::HeaderValue> {
    reqwest::header::HeaderValue::from_str(concat!("isotherm-ship/", env!("CARGO_PKG_VERSION"))).ok()
}

/// One try: when there is another is decided by `plan`.
#[cfg(feature = "remote")]
fn once(timeout: Duration) -> object_store::RetryConfig {
    object_store::RetryConfig { max_retries: 0, retry_timeout: timeout, ..object_store::RetryConfig::default() }
}

/// The builders of the three have the same methods and no trait.
#[cfg(feature = "remote")]
macro_rules! built {
    ($builder:ty, $url:expr, $settings:expr, $timeout:expr) => {{
        let mut builder = <$builder>::new().with_client_options(client($timeout)).with_retry(once($timeout));
        for (name, value) in $settings.iter() {
            if let Ok(key) = name.parse() {
                builder = builder.with_config(key, value);
            }
        }
        builder
            .with_url($url)
            .build()
            .map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
            .map_err(|error| error.to_string())
    }};
}
#[cfg(feature = "remote")]
use built;
