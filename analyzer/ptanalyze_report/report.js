// Tables that can be sorted and filtered. The library is inside the page, compressed: nothing is loaded.
const packed = Uint8Array.from(atob(document.getElementById("datatables").textContent), (one) => one.charCodeAt(0));
const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
const text = await new Response(unpacked).text();
const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
const { default: DataTable } = await import(address);
URL.revokeObjectURL(address);
for (const table of document.querySelectorAll("table.interactive")) {
  new DataTable(table, {
    paging: false,
    autoWidth: false,
    order: [],
    columnDefs: [{ targets: "number", type: "num", orderSequence: ["desc", "asc", ""] }],
    layout: { topStart: "search", topEnd: "info", bottomStart: null, bottomEnd: null },
    language: {
      search: "Filter:",
      info: "_TOTAL_ of _MAX_ rows; a click on a column's name sorts",
      infoEmpty: "none of _MAX_ rows",
      infoFiltered: "",
      zeroRecords: "No row has these words.",
    },
  });
}
document.documentElement.dataset.tables = "ready";
