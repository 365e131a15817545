"""Made papers: words with boxes and what each word is, for teaching the fields of documents. No page is drawn."""
