//! Object store in memory: source and destination of applications, and the simplest implementation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabul_content::RelativePath;
use sabul_wire::control::{Failure, FailureCode};

use super::object::{
    NewObject, Object, ObjectDestination, ObjectSource, Objects, Upload, Version, WrittenRanges,
    changed, check_write, checked,
};

/// Bytes of memory that are allocated together; holes between take no memory.
const PAGE: u64 = 64 << 10;

/// Objects in memory. Clones share the objects.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By the components of the path, which is the order of a list.
    objects: BTreeMap<Vec<Vec<u8>>, (Object, Arc<Pages>)>,
    versions: u64,
}

/// Content by offset; missing bytes are zero.
#[derive(Debug, Default)]
struct Pages(BTreeMap<u64, Vec<u8>>);

impl Pages {
    fn write(&mut self, mut offset: u64, mut content: &[u8]) {
        while !content.is_empty() {
            let (page, at) = (offset / PAGE * PAGE, offset % PAGE);
            let now =
                usize::try_from(PAGE - at).map_or(content.len(), |room| room.min(content.len()));
            let bytes = self.0.entry(page).or_default();
            let start = usize::try_from(at).unwrap_or(0);
            if bytes.len() < start + now {
                bytes.resize(start + now, 0);
            }
            bytes[start..start + now].copy_from_slice(&content[..now]);
            content = &content[now..];
            offset += now as u64;
        }
    }

    fn read(&self, mut offset: u64, end: u64, into: &mut Vec<u8>) -> usize {
        let before = into.len();
        let most = into.capacity() - before;
        let end = end.min(offset.saturating_add(most as u64));
        while offset < end {
            let (page, at) = (offset / PAGE * PAGE, offset % PAGE);
            let now = usize::try_from((PAGE - at).min(end - offset)).unwrap_or(0);
            let start = usize::try_from(at).unwrap_or(0);
            let bytes = self.0.get(&page).and_then(|bytes| bytes.get(start..)).unwrap_or_default();
            let bytes = &bytes[..bytes.len().min(now)];
            into.extend_from_slice(bytes);
            into.resize(into.len() + now - bytes.len(), 0);
            offset += now as u64;
        }
        into.len() - before
    }
}

fn key(path: &RelativePath) -> Vec<Vec<u8>> {
    path.components().map(<[u8]>::to_vec).collect()
}

impl Memory {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores an object in place of an object of this name.
    ///
    /// # Errors
    /// If the name could leave a destination.
    pub fn put(&self, path: &str, content: &[u8]) -> Result<(), Failure> {
        let path = checked(path.as_bytes())?;
        let mut pages = Pages::default();
        pages.write(0, content);
        let size = content.len() as u64;
        self.lock().publish(
            NewObject { path, size: Some(size), modified_ns: None, data: None },
            pages,
            size,
        );
        Ok(())
    }

    /// Returns the content of an object; `None` if there is no object of this name or its size exceeds the address
    /// space.
    pub fn get(&self, path: &str) -> Option<Vec<u8>> {
        let path = RelativePath::new(path.as_bytes()).ok()?;
        let inner = self.lock();
        let (object, pages) = inner.objects.get(&key(&path))?;
        let mut content = Vec::new();
        content.try_reserve_exact(usize::try_from(object.size).ok()?).ok()?;
        pages.read(0, object.size, &mut content);
        Some(content)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn publish(&mut self, new: NewObject, pages: Pages, size: u64) {
        self.versions += 1;
        let version = Version(self.versions.to_be_bytes().to_vec());
        let NewObject { path, modified_ns, data, .. } = new;
        let key = key(&path);
        let object = Object { path, size, modified_ns, data, version };
        self.objects.insert(key, (object, Arc::new(pages)));
    }
}

impl ObjectSource for Memory {
    fn list(&self) -> Result<Objects<'_>, Failure> {
        let mut last: Option<Vec<Vec<u8>>> = None;
        Ok(Box::new(std::iter::from_fn(move || {
            let inner = self.lock();
            let next = match &last {
                None => inner.objects.iter().next(),
                Some(last) => {
                    use std::ops::Bound::{Excluded, Unbounded};
                    inner.objects.range::<Vec<Vec<u8>>, _>((Excluded(last), Unbounded)).next()
                }
            };
            let (key, (object, _)) = next?;
            last = Some(key.clone());
            Some(Ok(object.clone()))
        })))
    }

    fn stat(&self, path: &RelativePath) -> Result<Object, Failure> {
        self.find(path)?.ok_or_else(|| {
            let reason = "there is no object of this name; check the name";
            Failure::of_file(FailureCode::NotFound, "read", path, reason)
        })
    }

    fn read(&self, object: &Object, offset: u64, into: &mut Vec<u8>) -> Result<usize, Failure> {
        let pages = match self.lock().objects.get(&key(&object.path)) {
            Some((now, pages)) if now.version == object.version => Arc::clone(pages),
            _ => return Err(changed(&object.path)),
        };
        Ok(pages.read(offset, object.size, into))
    }
}

impl ObjectDestination for Memory {
    fn find(&self, path: &RelativePath) -> Result<Option<Object>, Failure> {
        Ok(self.lock().objects.get(&key(path)).map(|(object, _)| object.clone()))
    }

    fn create(&self, new: &NewObject) -> Result<Box<dyn Upload>, Failure> {
        let (memory, new, written) = (self.clone(), new.clone(), Mutex::default());
        Ok(Box::new(MemoryUpload { memory, new, written }))
    }
}

/// An object of a [`Memory`] under construction.
#[derive(Debug)]
struct MemoryUpload {
    memory: Memory,
    new: NewObject,
    written: Mutex<(WrittenRanges, Pages)>,
}

impl MemoryUpload {
    fn lock(&self) -> MutexGuard<'_, (WrittenRanges, Pages)> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upload for MemoryUpload {
    fn write(&self, offset: u64, content: &[u8]) -> Result<(), Failure> {
        let end = check_write(&self.new, offset, content)?;
        let mut written = self.lock();
        written.0.add(offset, end);
        written.1.write(offset, content);
        Ok(())
    }

    /// Checks the content. Memory does not survive a power failure, and neither does its user.
    fn make_durable(&self) -> Result<(), Failure> {
        self.lock().0.check_complete(&self.new)
    }

    fn publish(self: Box<Self>) -> Result<(), Failure> {
        self.make_durable()?;
        let Self { memory, new, written } = *self;
        let (ranges, pages) = written.into_inner().unwrap_or_else(PoisonError::into_inner);
        let size = new.size.unwrap_or_else(|| ranges.end());
        memory.lock().publish(new, pages, size);
        Ok(())
    }

    fn abort(self: Box<Self>) {}
}
