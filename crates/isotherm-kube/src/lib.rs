//! Gives the cgroups of pods to schemes, by an annotation: `isotherm.dev/scheme: cold`.
//!
//! Root's settings, those of `isotherm run`, say which schemes pods may ask for, and in which namespaces. This program asks the API server for the
//! pods of its node, finds their cgroups, and writes which of them is for which scheme into a file, which `isotherm run` reads. That is all: it reads
//! metadata of pods and no specification, listens nowhere, changes nothing in the cluster, and has no privilege on the host.
//!
//! ```text
//! api ──> wire ──> pods ──> assign ──> cgroups ──> file
//! (HTTP)  (JSON)   (what    (who may   (which      (of isotherm_schemes::assigned)
//!                   there    have       folder)
//!                   is)      what)
//! ```
//!
//! | module | |
//! |---|---|
//! | [`args`] | the command line |
//! | [`wire`] | JSON of the API server; pure |
//! | [`pods`] | the pods that carry the annotation; pure |
//! | [`assign`] | which of them may have what they ask for; pure |
//! | [`cgroups`] | where the cgroup of a pod is |
//! | [`api`] | requests to the API server, with its token |
//! | [`follow`] | list, then watch, and what follows from each failure |
//! | [`run`] | the program |
//!
//! Everybody who may create a pod writes names, namespaces and annotations. So these are compared with what is permitted, and never become a part of a
//! path or of a request; the cgroup is found by the uid, which the API server makes.
//!
//! The client is hyper, which `isotherm-serve` has already, and no library for Kubernetes: two requests and one stream are all that is
//! needed, and `docs/guide/kubernetes.md` has what the library would have cost.

#![forbid(unsafe_code)]

pub mod api;
pub mod args;
pub mod assign;
pub mod cgroups;
pub mod follow;
pub mod pods;
pub mod run;
pub mod wire;

/// The annotation.
pub const ANNOTATION: &str = "isotherm.dev/scheme";
