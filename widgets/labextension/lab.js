// The JupyterLab extension: opens traces, comparisons, captured code and jobs with the timeline's bundle, and the explorer from the launcher and the palette.
//
// Python has that bundle: it fits what Python says of a file, also where this extension is of another version, which the bundle then tells.
//
// JupyterLab loads extensions as module-federation containers: an object with `init`, which gets the modules that all share, and `get`.
// There is no more to it, so this file is one as it stands, and nothing has to be built.

(() => {
  const built = new URL(document.currentScript.src).searchParams.get("v");
  const EXPLORE = "streamscope:explore";
  const JOB = "streamscope:open-job";
  const TRACE = /\.(parquet|json|json\.gz|sqlite|db)$/i;
  const FACTORY = "Streamscope timeline";
  const OTHERWISE = "Another viewer may know this file: right-click it in the file browser and choose Open With.";
  const SOURCE = "import streamscope as ss\n\nss.explore()";
  const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="24">
    <g fill="#0072b2"><rect x="2" y="4" width="9" height="4" rx="1"/><rect x="8" y="16" width="8" height="4" rx="1"/></g>
    <g fill="#e69f00"><rect x="13" y="4" width="6" height="4" rx="1"/><rect x="5" y="10" width="9" height="4" rx="1"/></g>
    <g fill="#009e73"><rect x="16" y="10" width="6" height="4" rx="1"/></g></svg>`;
  const STYLE = `
    .ss-file { overflow: auto; padding: 14px 18px; background: var(--jp-layout-color0); color: var(--jp-ui-font-color1);
      font-family: var(--jp-ui-font-family); }
    .ss-file h1 { font-size: 13px; font-weight: 400; margin: 0 0 6px; color: var(--jp-ui-font-color2); }
    .ss-file p { font-size: 15px; line-height: 1.45; margin: 2px 0 12px; max-width: 68em; white-space: pre-line; }
    .ss-file footer { font-size: 12px; color: var(--jp-ui-font-color2); margin: 10px 0 0; }
    .ss-file label { font-size: 13px; margin: 0 0 12px; display: block; }
    .ss-file ul { margin: -4px 0 12px; padding: 0; list-style: none; color: var(--jp-ui-font-color1); font-size: 13px; }
    .ss-file ul:empty { display: none; }
    .ss-file li::before { content: "⚠ "; }
    .ss-file h2 { font-size: 15px; font-weight: 600; margin: 18px 0 6px; }
    .ss-file summary { cursor: pointer; }
    .ss-sortable th button { all: unset; cursor: pointer; }
    .ss-sortable th button:is(:hover, :focus-visible) { text-decoration: underline; }
    .ss-sortable [aria-sort=none] button::after { content: " ↕" / ""; opacity: 0.5; }
    .ss-sortable [aria-sort=descending] button::after { content: " ▾"; }
    .ss-sortable [aria-sort=ascending] button::after { content: " ▴"; }
    .ss-file p.ss-failed { border-left: 3px solid var(--jp-error-color1); padding-left: 10px; white-space: pre-wrap; }`;

  let scope;

  /** Return one of JupyterLab's own modules: the copy that is in use. */
  async function shared(name) {
    const versions = Object.values(scope[name] ?? {});
    if (!versions.length) throw new Error(`JupyterLab shares no ${name}`);
    return (await (versions.find((version) => version.loaded) ?? versions[0]).get())();
  }

  function make(tag, text, className = "") {
    const element = document.createElement(tag);
    element.textContent = text;
    element.className = className;
    return element;
  }

  const bundles = new Map();

  /** Return a bundle as the server has it; a page asks for each once. */
  function bundleOf(name, version, { ServerConnection, URLExt }, settings) {
    const url = `${URLExt.join(settings.baseUrl, "streamscope", "bundle")}?${new URLSearchParams({ name, v: version })}`;
    const ask = async () => {
      const response = await ServerConnection.makeRequest(url, {}, settings);
      if (!response.ok) throw new Error(`The server has no ${name}: ${response.statusText}`);
      return import(URL.createObjectURL(new Blob([await response.text()], { type: "text/javascript" })));
    };
    if (!bundles.has(url)) bundles.set(url, ask().catch((error) => { bundles.delete(url); throw error; }));
    return bundles.get(url);
  }

  /** Return what the server made of a file: a title, what was found, and what the timeline draws; or its answer to a question. */
  async function read(path, { ServerConnection, URLExt }, settings, question = {}) {
    const asked = new URLSearchParams({ path, ask: JSON.stringify(question) });
    const url = `${URLExt.join(settings.baseUrl, "streamscope", "timeline")}?${asked}`;
    const response = await ServerConnection.makeRequest(url, {}, settings);
    if (!response.ok) {
      const { message } = await response.json().catch(() => ({}));
      const lacking = "The server has no Streamscope extension. Install Streamscope where JupyterLab runs, and start JupyterLab again.";
      throw new Error(message ?? (response.status === 404 ? lacking : response.statusText));
    }
    const buffer = await response.arrayBuffer();
    const length = new DataView(buffer).getUint32(0, true);
    const content = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
    if (content.refused) throw Object.assign(new Error(content.refused), { refused: true });
    return { ...content, block: new Uint8Array(buffer, 8 + length) };
  }

  /** Return the list of a file's GPUs, of which all are shown or one. `choose` gets the number of the one that is chosen, undefined for all. */
  function gpuChoice({ gpu, gpus }, choose) {
    const label = make("label", gpu === null ? "Shown are " : "Shown is ");
    const select = document.createElement("select");
    select.append(new Option(`all ${gpus.length} GPUs`, "", gpu === null, gpu === null));
    select.append(...gpus.map((number) => new Option(`GPU ${number}`, number, number === gpu, number === gpu)));
    select.addEventListener("change", () => choose(select.value ? Number(select.value) : undefined));
    label.append(select, gpu === null ? " of the file" : ` of the file's ${gpus.length} GPUs`);
    return label;
  }

  /** Return the tables of what costs most and what fills the memory, which the server made; of a long trace, they are asked for when unfolded. */
  function tablesOf(tables, ask, load) {
    const fill = async (box, html) => {
      box.innerHTML = html; // The server's own, with the file's words escaped.
      (await load()).sortTables(box);
    };
    const section = make("section", "");
    if (tables !== null) {
      fill(section, tables);
      return section;
    }
    const [more, box] = [make("details", ""), make("div", "Counting …")];
    more.append(make("summary", "What costs most, and what fills the memory"), box);
    more.addEventListener("toggle", () => {
      if (!more.open) return;
      ask({ type: "tables" }).then((answer) => fill(box, answer.tables || "The trace tells neither."), (error) => { box.textContent = error.message; });
    });
    section.append(more);
    return section;
  }

  /** Show a file in an element, or a folder or files as a `job`, now and whenever it changes. Returns a function that ends it. */
  function show(node, context, path, modules, settings, job) {
    let timeline = null;
    let turn = 0;
    let gpu;
    let ranks; // Of a job, those that are shown, if they are not the first.
    const draw = async (remark = "") => {
      const mine = ++turn;
      const wanted = { gpu, ...job };
      try {
        const content = await read(path(), modules, settings, wanted);
        const { title, finding, further, warnings, notes, header, block, bundle, stamp } = content;
        const load = (name) => bundleOf(name, bundle, modules, settings);
        const { open, decode, notice } = await load("timeline.js");
        if (mine !== turn) return;
        timeline?.destroy();
        const stage = make("div", "");
        const told = make("ul", "");
        const tell = (...texts) => told.append(...texts.map((text) => make("li", text)));
        tell(...[remark, notice()].filter(Boolean), ...warnings, ...notes);
        const choose = (number) => { gpu = number; draw(); };
        const choice = content.gpus?.length > 1 ? [gpuChoice(content, choose)] : [];
        const ask = async (question) => {
          const paths = question.type === "paths";
          const shows = question.type === "show";
          try {
            const chosen = shows ? { ranks: question.numbers } : { ...question, ranks };
            const answer = await read(path(), modules, settings, { ...chosen, ...wanted, stamp });
            if (mine !== turn) throw new Error("another version of the file is shown");
            if (shows && !answer.changed) {
              ranks = question.numbers;
              timeline.replace(decode(answer.header, answer.block));
            }
            if (!answer.changed) return answer;
          } catch (error) {
            if (mine === turn && paths) tell(`The critical path could not be had: ${error.message} Switch it on to ask again.`);
            throw error;
          }
          await draw(`The file was written again since it was drawn. It was read anew${paths ? ": ask for the critical path again" : ""}.`);
          throw new Error("the file was written again");
        };
        const second = () => load("details.js");
        const tables = tablesOf(content.tables, ask, second);
        node.replaceChildren(make("h1", title), ...choice, ...(finding ? [make("p", finding)] : []), told, stage, tables, make("footer", further));
        timeline = await open(stage, header, block, ask, second);
      } catch (error) {
        if (mine !== turn) return;
        if (gpu === undefined) {
          node.replaceChildren(make("p", error.message, "ss-failed"), make("p", OTHERWISE));
        } else { // The file may have been written again, without the GPU that was chosen.
          gpu = undefined;
          await draw(error.message);
        }
      }
    };
    const drawAgain = () => draw();
    node.replaceChildren(make("p", "Reading …"));
    context.ready.then(() => {
      context.fileChanged.connect(drawAgain);
      return draw();
    });
    return () => {
      turn++;
      context.fileChanged.disconnect(drawAgain);
      timeline?.destroy();
    };
  }

  /** The folder, or the trace files, that are selected in the file browser; nothing where something else is. */
  function chosenJob(browsers) {
    const items = [...(browsers?.tracker.currentWidget?.selectedItems() ?? [])];
    const [first] = items;
    if (items.length === 1 && first.type === "directory") return { path: first.path, name: first.name };
    const traces = items.length > 1 && items.every(({ type, name }) => type !== "directory" && TRACE.test(name));
    return traces ? { path: first.path, name: `${items.length} ranks`, files: items.map(({ path }) => path) } : null;
  }

  /** Open a folder, or several trace files, as the ranks of one job. */
  function addJobs(app, modules, browsers) {
    const { Widget, MainAreaWidget, icon } = modules;
    const { contents, serverSettings } = app.serviceManager;
    app.commands.addCommand(JOB, {
      label: "Open as Job",
      caption: "Show the traces of all ranks of a job on one clock",
      icon,
      isVisible: () => chosenJob(browsers) !== null,
      execute: () => {
        const { path, name, files } = chosenJob(browsers);
        const content = new Widget();
        content.addClass("ss-file");
        const signal = { connect() {}, disconnect() {} }; // No file is watched: what is asked of a changed one draws it anew.
        const job = { job: true, files: files?.map((file) => contents.localPath(file)) };
        content.disposed.connect(show(content.node, { ready: Promise.resolve(), fileChanged: signal }, () => contents.localPath(path), modules, serverSettings, job));
        const panel = new MainAreaWidget({ content });
        Object.assign(panel.title, { label: name, icon, caption: `Job: ${files?.join(", ") ?? path}`, closable: true });
        app.shell.add(panel, "main");
        app.shell.activateById(panel.id);
        return panel;
      },
    });
    app.contextMenu.addItem({ command: JOB, selector: ".jp-DirListing-item", rank: 1.5 });
  }

  /** Teach JupyterLab to open our files. Their content does not pass through it: the server reads them by path. */
  function addFiles(app, modules) {
    const { Widget, ABCWidgetFactory, DocumentWidget, TextModelFactory } = modules;
    class Model extends TextModelFactory {
      get name() { return "streamscope-path"; }
      get fileFormat() { return null; }
    }
    class Factory extends ABCWidgetFactory {
      createNewWidget(context) {
        const content = new Widget();
        content.addClass("ss-file");
        const path = () => app.serviceManager.contents.localPath(context.path);
        const end = show(content.node, context, path, modules, app.serviceManager.serverSettings);
        content.disposed.connect(end);
        content.title.icon = modules.icon;
        return new DocumentWidget({ content, context });
      }
    }
    const kind = { fileFormat: null, contentType: "file" };
    const addType = (name, displayName, extensions, more) => app.docRegistry.addFileType({ ...kind, name, displayName, extensions, ...more });
    const { icon } = modules;
    addType("streamscope-trace", "Streamscope trace", [".parquet"], { icon });
    addType("streamscope-kineto", "Kineto trace", [".pt.trace.json", ".pt.trace.json.gz"], { icon });
    addType("streamscope-xplane", "XPlane trace", [".xplane.pb"], { icon });
    addType("streamscope-comparison", "Streamscope comparison", [], { icon, pattern: "^comparison\\.json$" });
    addType("streamscope-job", "Job of several ranks", [], { icon, pattern: "^ranks\\.json$" });
    addType("streamscope-captured", "Captured code", [".captured.json"], { icon });
    const ours = ["streamscope-trace", "streamscope-kineto", "streamscope-xplane", "streamscope-comparison", "streamscope-job", "streamscope-captured"];
    // These may be anybody's. They are traces where somebody says so: "Open With".
    addType("streamscope-packed", "JSON, compressed", [".json.gz"]);
    addType("streamscope-database", "SQLite database", [".sqlite", ".db"]);
    const fileTypes = [...ours, "streamscope-packed", "streamscope-database", "json"];
    app.docRegistry.addModelFactory(new Model());
    app.docRegistry.addWidgetFactory(
      new Factory({ name: FACTORY, modelName: "streamscope-path", fileTypes, defaultFor: ours, readOnly: true }),
    );
  }

  /** Open a file of source code at a line, if it lies below the server's root; `say` tells where it does not. */
  async function openSource(app, { ServerConnection, URLExt }, { file, line, say }) {
    const { contents, serverSettings } = app.serviceManager;
    const beside = contents.localPath(app.shell.currentWidget?.context?.path ?? "");
    const url = `${URLExt.join(serverSettings.baseUrl, "streamscope", "source")}?${new URLSearchParams({ file, beside })}`;
    try {
      const response = await ServerConnection.makeRequest(url, {}, serverSettings);
      const { path, refused } = await response.json().catch(() => ({}));
      if (!path) throw new Error(refused ?? response.statusText);
      const { context, content } = await app.commands.execute("docmanager:open", { path, factory: "Editor" });
      await context.ready;
      const place = { line: Math.max(0, line - 1), column: 0 };
      content.editor.setCursorPosition(place);
      content.editor.revealPosition(place);
    } catch (error) {
      say(`Not opened: ${error.message}`);
    }
  }

  /** Places of code in timelines, in notebooks and files, send this event (places.js). */
  function addSources(app, modules) {
    document.addEventListener("streamscope:open", (event) => {
      event.preventDefault();
      openSource(app, modules, event.detail);
    });
  }

  /** Open a notebook with the explorer in it, and run it. */
  async function explore(app, cwd) {
    const { kernelspecs } = app.serviceManager;
    await kernelspecs.ready;
    const specs = Object.values(kernelspecs.specs?.kernelspecs ?? {});
    const isPython = (spec) => spec?.language === "python";
    const usual = kernelspecs.specs?.kernelspecs[kernelspecs.specs.default];
    const kernelName = (isPython(usual) ? usual : specs.find(isPython))?.name;
    const panel = await app.commands.execute("notebook:create-new", { cwd, kernelName, activate: true });
    await panel.context.ready;
    await panel.sessionContext.ready;
    panel.content.activeCell.model.sharedModel.setSource(SOURCE);
    app.shell.activateById(panel.id);
    await app.commands.execute("notebook:run-all-cells");
    return panel;
  }

  function addExplorer(app, icon, palette, launcher) {
    app.commands.addCommand(EXPLORE, {
      label: "Streamscope Explorer",
      caption: "Open knobs and timelines in a new notebook",
      icon,
      execute: ({ cwd = "" }) => explore(app, cwd),
    });
    palette?.addItem({ command: EXPLORE, category: "Streamscope" });
    launcher?.add({ command: EXPLORE, category: "Other", rank: 1 });
  }

  async function plugin() {
    const [apputils, { ILauncher }, { LabIcon }, { Widget }, registry, { ServerConnection }, { URLExt }, filebrowser] = await Promise.all([
      "@jupyterlab/apputils", "@jupyterlab/launcher", "@jupyterlab/ui-components", "@lumino/widgets", "@jupyterlab/docregistry",
      "@jupyterlab/services", "@jupyterlab/coreutils", "@jupyterlab/filebrowser",
    ].map(shared));
    const { ICommandPalette, MainAreaWidget } = apputils;
    const icon = new LabIcon({ name: "streamscope:icon", svgstr: ICON });
    return {
      id: "streamscope:plugin",
      description: "Opens Streamscope traces, comparisons, captured code and jobs, and the explorer.",
      autoStart: true,
      optional: [ICommandPalette, ILauncher, filebrowser.IFileBrowserFactory],
      activate: (app, palette, launcher, browsers) => {
        const modules = { ...registry, Widget, MainAreaWidget, ServerConnection, URLExt, icon };
        document.head.append(make("style", STYLE));
        if (built) document.body.dataset.streamscope = built;
        addFiles(app, modules);
        if (browsers) addJobs(app, modules, browsers);
        addSources(app, modules);
        addExplorer(app, icon, palette, launcher);
      },
    };
  }

  (window._JUPYTERLAB ??= {}).streamscope = {
    init: (modules) => { scope = modules; },
    get: async () => {
      const made = await plugin();
      return () => ({ __esModule: true, default: made });
    },
  };
})();
