//! Pages of the documentation as the tests read them: links, headings, examples.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A page.
pub struct Page {
    pub path: PathBuf,
    /// Targets of links and pictures, as written.
    pub links: Vec<String>,
    /// Names by which headings can be linked to.
    pub anchors: Vec<String>,
    /// Fenced blocks: the words after the fence, and the text.
    pub examples: Vec<(String, String)>,
}

impl Page {
    pub fn read(path: &Path) -> Page {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()));
        let mut page = Page { path: path.to_owned(), links: Vec::new(), anchors: Vec::new(), examples: Vec::new() };
        let (mut heading, mut fence) = (None, None);
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.anchors.extend(heading.take()),
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(words))) => {
                    fence = Some((words.into_string(), String::new()));
                }
                Event::End(TagEnd::CodeBlock) => page.examples.extend(fence.take()),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    } else if let Some((_, example)) = &mut fence {
                        example.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        page.anchors = anchors(&page.anchors);
        page
    }
}

/// What GitHub and mdBook make of headings: small letters, hyphens for spaces, no punctuation; a number where one repeats.
fn anchors(headings: &[String]) -> Vec<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let slug = |heading: &String| {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect();
        let times = seen.entry(slug.clone()).or_default();
        *times += 1;
        if *times == 1 { slug } else { format!("{slug}-{}", *times - 1) }
    };
    headings.iter().map(slug).collect()
}

/// Every page below a folder of the repository.
pub fn pages_below(folder: &str) -> Vec<Page> {
    let mut paths = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                Some(extension) if extension == "md" => paths.push(path),
                None if path.is_dir() => folders.push(path),
                _ => {}
            }
        }
    }
    paths.sort();
    paths.iter().map(|path| Page::read(path)).collect()
}
